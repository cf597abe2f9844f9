package main

import (
	"fmt"
	"io"
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
	{
		exitFail,
		"it could not be done, or what was looked at is not well: an audit that does not balance, an endpoint that does " +
			"not take a ping, a process that is not ready",
	},
	{exitUsage, "usage error: unknown flags, invalid configuration or input, an invalid policy; nothing was changed"},
}

// variables are environment variables without a flag: secrets, which other accounts could read among the arguments,
// and settings that must be equal in every process.
var variables = []struct{ name, say string }{
	{envAdminToken, "admin token, sent as Authorization: Bearer; `sluice up` generates one in its data directory"},
	{envSecret, "HS256 secret of buyers' tokens, at least 32 bytes; `sluice up` generates one in its data directory"},
	{
		envPayment,
		"secrets that the payment provider signs its callbacks with, whsec_..., separated by spaces; without one, " +
			"callbacks get 503",
	},
	{
		envVAPID,
		"private key for Web Push, see `sluice group vapid`; without it Web Push is off; `sluice up` generates one in its " +
			"data directory",
	},
	{envWebPushAllowPrivate, "networks in which push services may be, in addition to public addresses, comma-separated"},
	{envLimitRedis, "Redis that the limit per buyer counts in; without it, each backend counts for itself"},
	{envUserRate, "limit per buyer, such as 10-S: so many a second (S), minute (M), hour (H) or day (D)"},
	{"NO_COLOR", "no colours, whatever its value is"},
}

func (p *program) manualCommand() *cobra.Command {
	var markdown bool
	c := &cobra.Command{
		Use:   "manual [COMMAND...]",
		Short: "Print the reference of all commands, flags, variables and exit codes",
		Long: `Print the --help of every command, or of one command and its subcommands, with all flags, their
defaults and the common conventions.`,
		Example: `  sluice manual | less
  sluice manual sale create
  sluice manual --markdown > docs/commands.md`,
		Args: cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			// the defaults, not this machine's environment
			plain := &program{getenv: func(string) string { return "" }, out: p.out, errOut: p.errOut}
			root := plain.root()
			m := manual{w: p.out, markdown: markdown}
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
	c.Flags().BoolVar(&markdown, "markdown", false, "as Markdown")
	return c
}

// manual writes the reference of a command tree.
type manual struct {
	w        io.Writer
	markdown bool
}

func (m manual) write(root *cobra.Command) {
	if m.markdown {
		fmt.Fprintln(m.w, "# Commands\n\n<!-- Made by `sluice manual --markdown`; do not edit. -->")
	} else {
		fmt.Fprintln(m.w, "SLUICE(1)")
	}
	m.commands(root)
	m.heading("Environment")
	m.text(
		"A flag wins over its variable, and a variable over the default. These belong to no flag, because they are " +
			"secrets, or must be the same in every process:",
	)
	rows := [][]string{}
	for _, v := range variables {
		rows = append(rows, []string{v.name, v.say})
	}
	m.table([]string{"Variable", "What"}, rows)
	m.heading("Exit codes")
	rows = rows[:0]
	for _, e := range exitCodes {
		rows = append(rows, []string{fmt.Sprint(e.code), e.say})
	}
	m.table([]string{"Code", "When"}, rows)
	m.heading("Output")
	m.text(
		"Results go to standard output, as a table or, with --json, as JSON. Errors, logs (JSON, one object per line) and " +
			"progress go to standard " +
			"error. A line that changes is written on a terminal only, and not where TERM is dumb.",
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
	if c.Long != "" {
		m.text(c.Long)
	} else {
		m.text(c.Short + ".")
	}
	if c.Runnable() && !c.HasAvailableSubCommands() || c.LocalNonPersistentFlags().HasAvailableFlags() {
		m.block(strings.TrimSpace(c.UseLine()))
	}
	if c.HasExample() {
		m.block(dedent(c.Example))
	}
	rows := [][]string{}
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" && f.Name != "version" {
			rows = append(rows, []string{flagName(f), flagDefault(f), f.Usage})
		}
	})
	if len(rows) > 0 {
		m.table([]string{"Flag", "Default", "What"}, rows)
	}
	if c.HasParent() && c.Parent().PersistentFlags().HasAvailableFlags() && c.Parent().HasParent() {
		m.text("And the flags of " + m.code(c.Parent().CommandPath()) + ".")
	}
	for _, sub := range c.Commands() {
		m.commands(sub)
	}
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

func dedent(example string) string {
	lines := strings.Split(strings.Trim(example, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}

func (m manual) heading(text string) {
	if m.markdown {
		fmt.Fprintf(m.w, "\n## %s\n", text)
		return
	}
	fmt.Fprintf(m.w, "\n%s\n", strings.ToUpper(text))
}

func (m manual) text(text string) {
	if m.markdown {
		fmt.Fprintf(m.w, "\n%s\n", text)
		return
	}
	fmt.Fprintf(m.w, "\n%s\n", indent(text))
}

func (m manual) block(text string) {
	if m.markdown {
		fmt.Fprintf(m.w, "\n```sh\n%s\n```\n", text)
		return
	}
	fmt.Fprintf(m.w, "\n%s\n", indent(indent(text)))
}

func (m manual) code(text string) string {
	if m.markdown {
		return "`" + text + "`"
	}
	return text
}

// table's first column is what one types.
func (m manual) table(head []string, rows [][]string) {
	if !m.markdown {
		fmt.Fprintln(m.w)
		for _, row := range rows {
			line := row[0]
			if len(row) == 3 && row[1] != "" {
				line += " (" + row[1] + ")"
			}
			fmt.Fprintf(m.w, "    %s\n        %s\n", line, row[len(row)-1])
		}
		return
	}
	fmt.Fprintf(m.w, "\n| %s |\n|%s\n", strings.Join(head, " | "), strings.Repeat(" --- |", len(head)))
	for _, row := range rows {
		cells := []string{"`" + row[0] + "`"}
		for i, cell := range row[1:] {
			cell = strings.ReplaceAll(cell, "|", "\\|")
			if i == 0 && len(row) == 3 && cell != "" {
				cell = "`" + cell + "`"
			}
			cells = append(cells, cell)
		}
		fmt.Fprintf(m.w, "| %s |\n", strings.Join(cells, " | "))
	}
}

func indent(text string) string { return "    " + strings.ReplaceAll(text, "\n", "\n    ") }
