package main

import (
	"os"
	"strings"
)

// secretVariables are the variables whose value may be in a file, which NAME_FILE names: URLs are among them because
// they contain passwords.
var secretVariables = []string{
	envAdminToken, envSecret, envPayment, envVAPID, envRedis, envLimitRedis, envDatabase,
}

// maxSecret bounds the files of secrets, in bytes.
const maxSecret = 64 << 10

// withSecretFiles returns getenv with the secret variables whose files are named, as systemd's LoadCredential and
// secrets of containers provide them. White space around a value is removed; without a value the variable is not set.
func withSecretFiles(getenv func(string) string) (func(string) string, error) {
	var bad problems
	values := map[string]string{}
	for _, name := range secretVariables {
		path := getenv(name + "_FILE")
		switch {
		case path == "":
			continue
		case getenv(name) != "":
			bad.add("%s and %s_FILE are both set: set one of them", name, name)
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			bad.add("%s_FILE: %v", name, err)
			continue
		}
		if len(text) > maxSecret {
			bad.add("%s_FILE: %s has %d bytes: a secret has at most %d", name, path, len(text), maxSecret)
			continue
		}
		values[name] = strings.TrimSpace(string(text))
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
