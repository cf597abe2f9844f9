package main

import (
	"fmt"
	"strings"
	"unicode"

	"sluice/internal/reload"
)

// secretVariables are the variables whose value may be in the file that NAME_FILE names. URLs are among them because
// they contain passwords.
var secretVariables = []string{
	envAdminToken, envSecret, envPayment, envVAPID, envRedis, envLimitRedis, envDatabase, envOrdersReplica,
}

// maxSecret bounds the files of secrets, in bytes.
const maxSecret = 64 << 10

// withSecretFiles returns a getenv that also reads secrets from files. If NAME_FILE is set, the variable NAME has the
// content of that file, without white space around it. systemd's LoadCredential and the secrets of containers provide
// such files. An empty file sets nothing, because the systemd units name a file for each secret, also for one that is
// not used.
func withSecretFiles(getenv func(string) string) (func(string) string, error) {
	var bad problems
	values := map[string]string{}
	for _, name := range secretVariables {
		path := getenv(name + "_FILE")
		if path == "" {
			continue
		}
		value, err := readSecret(path)
		set := strings.TrimSpace(getenv(name))
		switch {
		case err != nil:
			bad.add("%s_FILE: %v", name, err)
		case set != "" && value != "" && value != set:
			bad.add("%s and %s_FILE are both set: set one of them", name, name)
		case value != "":
			values[name] = value
		}
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	if len(values) == 0 {
		return getenv, nil
	}
	return func(name string) string {
		if value, ok := values[name]; ok {
			return value
		}
		return getenv(name)
	}, nil
}

func readSecret(path string) (string, error) {
	text, err := reload.ReadFile(path, maxSecret)
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(text))
	if strings.ContainsFunc(value, unicode.IsControl) {
		return "", fmt.Errorf("%s has more than one line, or control characters: write the secret alone into it", path)
	}
	return value, nil
}
