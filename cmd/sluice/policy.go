package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sluice/gateway/limit"
	"sluice/gateway/policy"
	"sluice/gateway/policy/importer"
	"sluice/internal/plural"
)

const (
	defaultPolicy = "lua/policy.lua" // in the working directory
	defaultZone   = "64m"            // of sluice_buckets in nginx/conf.d/20-lua.conf
	defaultKeys   = 20_000
)

func (p *program) policyCommand() *cobra.Command {
	return parent(&cobra.Command{
		Use: "policy", Short: "Check or convert an edge policy, or replay recorded traffic through it",
	}, p.checkCommand(), p.importCommand(), p.replayCommand())
}

func (p *program) importCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Convert the rate limits of nginx, ingress-nginx or APISIX to a policy",
		Long: `Convert rate limits to a policy, and write it to standard output: limit_req of an nginx configuration
with the files that it includes, or, from YAML and JSON, the annotations limit-rps and limit-rpm of
Ingresses and the plugin limit-req of APISIX. Settings without an equivalent, or with another meaning
in a policy, are listed in comments and on standard error. Compare the result with recorded traffic:
sluice policy replay.`,
		Example: `  sluice policy import /etc/nginx/nginx.conf >new.lua
  kubectl get ingress -A -o yaml >ingresses.yaml && sluice policy import ingresses.yaml >new.lua
  sluice policy replay access.log --policy new.lua`,
		RunE: func(cmd *cobra.Command, args []string) error {
			result, err := readInput(cmd.Context(), func() (*importer.Result, error) { return importer.Import(args[0]) })
			if err != nil {
				return err
			}
			if n := len(result.Rules); n > policy.MaxRules {
				return usage("%s has %d limits; a policy has at most %d rules: split the file", args[0], n, policy.MaxRules)
			}
			text := result.Policy(args[0])
			if _, err := policy.Parse(args[0], text); err != nil {
				return usage("%s makes no valid policy: split the file: %w", args[0], err)
			}
			p.printFindings(result.Notes)
			_, err = p.out.Write(text)
			return err
		},
	}
}

func (p *program) printFindings(all policy.Findings) {
	for _, f := range all {
		fmt.Fprintln(p.errOut, visible(oneLine(f)))
	}
}

func (p *program) checkCommand() *cobra.Command {
	expect := policy.Sizing{Buckets: limit.DefaultCapacity}
	var zone string
	var strict bool
	c := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a policy; if it is invalid, exit 2 and print a line for each error",
		Long: `Check a policy as both edges read it. Each error is one line, FILE:LINE: problem and remedy, and the
exit code is 2. A warning marks a setting that is valid and probably unintended: a rule that never
rejects, a burst that is too small for requests that arrive within one millisecond, a zone that is
too small for the expected clients. FILE defaults to ` + envPolicy + `, or to lua/policy.lua if that
is not set.`,
		Example: `  sluice policy check
  sluice policy check new.lua --strict                     # warnings fail too: for continuous integration
  sluice policy check new.lua --keys 400000 --zone 256m    # check the size for 400,000 concurrent clients`,
		RunE: func(cmd *cobra.Command, args []string) error {
			file := cmp.Or(p.getenv(envPolicy), defaultPolicy)
			if len(args) == 1 {
				file = args[0]
			}
			if err := checkDefaultPolicy(file); err != nil {
				return err
			}
			got, err := interruptible(cmd.Context(), func() (policyCheck, error) { return checkPolicy(file, expect), nil })
			if err != nil {
				return err
			}
			got.Valid = len(got.Errors) == 0 && (!strict || len(got.Warnings) == 0)
			err = p.show(got, func(w io.Writer) { p.printCheck(w, got) })
			if err == nil && !got.Valid {
				err = errReported
			}
			return err
		},
	}
	f := p.flags(c)
	f.number(&expect.Keys, "keys", "", defaultKeys, 0, 0,
		"expected clients, and as many buyers, within the time a bucket takes to drain; 0: skip the check of the size")
	f.StringVar(&zone, "zone", defaultZone, "size of the nginx edge's zone sluice_buckets")
	f.json(&p.json)
	f.BoolVar(&strict, "strict", false, "treat warnings as errors")
	f.check(func(bad *problems) {
		var err error
		expect.Zone, err = parseSize(zone)
		bad.check("--zone", err)
	})
	return c
}

// checkDefaultPolicy returns an error if file is the default policy and does not exist: only a clone has it.
func checkDefaultPolicy(file string) error {
	if file != defaultPolicy {
		return nil
	}
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return usage("%s does not exist in this directory: name a policy, or set %s", file, envPolicy)
	}
	return nil
}

var sizeUnits = map[string]uint64{"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

// parseSize reads a size as nginx writes it: 64m, 512k, or bytes.
func parseSize(text string) (int64, error) {
	digits := strings.TrimRight(text, "kKmMgG")
	unit, known := sizeUnits[strings.ToLower(text[len(digits):])]
	n, err := strconv.ParseUint(digits, 10, 64)
	if !known || err != nil || n == 0 || n > (1<<50)/unit {
		return 0, fmt.Errorf("%q: want a size such as 64m or 512k", text)
	}
	return int64(n * unit), nil
}

type policyCheck struct {
	File     string          `json:"file"`
	Valid    bool            `json:"valid"` // with --strict: and without warnings
	Rules    int             `json:"rules"`
	Errors   policy.Findings `json:"errors"`
	Warnings policy.Findings `json:"warnings"`
}

// checkPolicy returns the result without Valid.
func checkPolicy(file string, size policy.Sizing) policyCheck {
	found := policyCheck{File: file, Errors: policy.Findings{}, Warnings: policy.Findings{}}
	read, warnings, err := policy.Inspect(file, size)
	if err != nil {
		found.Errors, _ = errors.AsType[policy.Findings](err)
		return found
	}
	found.Rules, found.Warnings = len(read.Rules), append(found.Warnings, warnings...)
	return found
}

func (p *program) printCheck(w io.Writer, found policyCheck) {
	p.printFindings(found.Errors)
	for i := range found.Warnings {
		found.Warnings[i].Message = "warning: " + found.Warnings[i].Message
	}
	p.printFindings(found.Warnings)
	if !found.Valid {
		return
	}
	fmt.Fprintf(w, "%s is valid: %s", found.File, plural.Count(found.Rules, "rule"))
	if len(found.Warnings) > 0 {
		fmt.Fprintf(w, ", %s", plural.Count(len(found.Warnings), "warning"))
	}
	fmt.Fprintln(w)
}
