package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// exitCodes are what the program ends with.
var exitCodes = []struct {
	code int
	say  string
}{
	{exitOK, "success; after SIGTERM or SIGINT, a server has finished the work in progress"},
	{exitFail, "the command failed, or a check did: an audit that does not balance, an endpoint " +
		"that does not take a ping, a process that is not ready"},
	{exitUsage, "usage error: unknown flags, invalid configuration or input, an invalid policy; nothing was changed"},
}

// variables are environment variables without a flag: secrets, which other accounts could read among the arguments,
// and settings that must be equal in every process.
var variables = []struct{ name, say string }{
	{envAdminToken, "admin token of at least 16 bytes, sent as Bearer token; `sluice up` makes one in its data directory"},
	{envSecret, "HS256 secret of buyers' tokens, at least 32 bytes; `sluice up` generates one in its data directory"},
	{envPayment, "secrets that the payment provider signs its callbacks with, whsec_..., separated by spaces; without " +
		"one, callbacks get 503"},
	{envVAPID, "private key for Web Push, see `sluice group vapid`; without it Web Push is off; `sluice up` generates " +
		"one in its data directory"},
	{envWebPushAllowPrivate, "networks in which push services may be, in addition to public addresses, comma-separated"},
	{
		envLimitRedis,
		"Redis that the limit per buyer counts in; without it, each backend counts for itself; also --limit-redis of edges",
	},
	{envUserRate, "limit per buyer, such as 10-S: requests per second (S), minute (M), hour (H) or day (D)"},
	{"NO_COLOR", "no colours, with any value"},
}

func (p *program) manualCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "manual [COMMAND...]",
		Short: "Print the reference of all commands, flags, variables and exit codes",
		Long: `Print the --help of every command, or of one command and its subcommands, with all flags, their
defaults and the common conventions, as Markdown.`,
		Example: `  sluice manual | less
  sluice manual sale create
  sluice manual > docs/commands.md`,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			// the defaults, not this machine's environment
			plain := &program{getenv: func(string) string { return "" }, out: p.out, errOut: p.errOut}
			root := plain.root()
			m := manual{p.out}
			if len(args) == 0 {
				m.write(root)
				return nil
			}
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return usage("there is no command %q", strings.Join(args, " "))
			}
			m.commands(c)
			return nil
		},
	}
}

// manual writes the reference of a command tree as Markdown.
type manual struct{ w io.Writer }

func (m manual) write(root *cobra.Command) {
	fmt.Fprintln(m.w, "# Commands\n\n<!-- Made by `sluice manual`; do not edit. -->")
	m.commands(root)
	m.heading("Environment")
	m.text("A flag wins over its variable, and a variable over the default. These belong to no flag, because they are " +
		"secrets, or must be the same in every process:")
	m.table("Variable", "What")
	for _, v := range variables {
		m.row(quoted(v.name), v.say)
	}
	m.text(
		"A variable that holds a secret can be in a file: NAME_FILE names the file, for example as systemd's LoadCredential " +
			"or a container provides it. These are " + enumeration(
			secretVariables,
		) + ".",
	)
	m.heading("Exit codes")
	m.table("Code", "When")
	for _, e := range exitCodes {
		m.row(quoted(strconv.Itoa(e.code)), e.say)
	}
	m.heading("Output")
	m.text(
		"Results go to standard output, as a table or, with --json, as JSON. Errors, logs (JSON, one object per line) " +
			"and progress go to standard error. A line that changes is written on a terminal only, and not where TERM is dumb.",
	)
	m.heading("Completion in a shell")
	m.block(`source <(sluice completion bash)                                    # bash, with the package bash-completion
sluice completion zsh > "${fpath[1]}/_sluice"                       # zsh
sluice completion fish > ~/.config/fish/completions/sluice.fish     # fish`)
	m.text("Names of sales, endpoints and groups are completed with a request to the server.")
}

// commands writes a command and those below it.
func (m manual) commands(c *cobra.Command) {
	if !c.IsAvailableCommand() && c.HasParent() {
		return
	}
	m.heading(c.CommandPath())
	m.text(cmp.Or(c.Long, c.Short+"."))
	if c.Runnable() && !c.HasAvailableSubCommands() || c.LocalNonPersistentFlags().HasAvailableFlags() {
		m.block(strings.TrimSpace(c.UseLine()))
	}
	if c.HasExample() {
		m.block(strings.TrimPrefix(strings.ReplaceAll(strings.Trim(c.Example, "\n"), "\n  ", "\n"), "  "))
	}
	first := true
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		if first {
			m.table("Flag", "Default", "What")
			first = false
		}
		m.row(quoted(flagName(f)), quoted(flagDefault(f)), f.Usage)
	})
	if c.HasParent() && c.Parent().PersistentFlags().HasAvailableFlags() && c.Parent().HasParent() {
		m.text("And " + sharedFlags(c.Parent()) + " of " + quoted(c.Parent().CommandPath()) + ".")
	}
	for _, sub := range c.Commands() {
		m.commands(sub)
	}
}

// sharedFlags names the flags of c that its subcommands take too. Without a name these are all flags of c.
func sharedFlags(c *cobra.Command) string {
	if !c.LocalNonPersistentFlags().HasAvailableFlags() {
		return "the flags"
	}
	var names []string
	c.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, quoted("--"+f.Name))
		}
	})
	return strings.Join(names, ", ")
}

func flagName(f *pflag.Flag) string {
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if f.Value.Type() != "bool" {
		name += " " + f.Value.Type()
	}
	return name
}

// flagDefault returns the default of a flag where its help does not state it.
func flagDefault(f *pflag.Flag) string {
	if f.DefValue == "[]" || f.Value.Type() == "bool" && f.DefValue == "false" {
		return ""
	}
	return f.DefValue
}

func (m manual) heading(text string) { fmt.Fprintf(m.w, "\n## %s\n", text) }
func (m manual) text(text string)    { fmt.Fprintf(m.w, "\n%s\n", text) }
func (m manual) block(text string)   { fmt.Fprintf(m.w, "\n```sh\n%s\n```\n", text) }

func (m manual) table(head ...string) {
	fmt.Fprintln(m.w)
	m.row(head...)
	fmt.Fprintln(m.w, "|"+strings.Repeat(" --- |", len(head)))
}

func (m manual) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = strings.ReplaceAll(cell, "|", "\\|")
	}
	fmt.Fprintf(m.w, "| %s |\n", strings.Join(cells, " | "))
}

// enumeration returns names as one phrase.
func enumeration(names []string) string {
	last := len(names) - 1
	return "`" + strings.Join(names[:last], "`, `") + "` and `" + names[last] + "`"
}

// quoted marks text as what a user types; empty text stays empty.
func quoted(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
