package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/internal/spelling"
)

// resembles reports whether a command or flag is suggested for an unknown one: it differs by at most two edits, and in
// short names by a third of the longer name.
func resembles(unknown, name string) bool {
	return spelling.Distance(unknown, name) <= min(2, max(len(unknown), len(name))/3)
}

// checkArgs returns an error unless the usage line of a command names as many arguments.
func checkArgs(c *cobra.Command, args []string) error {
	required, most := argumentNames(c.Use)
	if len(required) <= len(args) && len(args) <= most {
		return nil
	}
	return argsError(c, args)
}

// argsError describes wrong arguments of a command: an unknown subcommand, a missing argument or a surplus one.
func argsError(c *cobra.Command, args []string) error {
	if err := unknownCommand(c, args); err != nil {
		return err
	}
	required, most := argumentNames(c.Use)
	if len(args) < len(required) {
		missing := strings.TrimSuffix(required[len(args)], "...")
		return usage("%s is missing: want %s", missing, c.UseLine())
	}
	return usage("unexpected argument %q: want %s", args[min(most, len(args)-1)], c.UseLine())
}

// unknownCommand returns an error if the first argument of a command with subcommands is meant as one of them: the
// command takes no arguments, or a subcommand resembles it.
func unknownCommand(c *cobra.Command, args []string) error {
	if !c.HasSubCommands() || len(args) == 0 {
		return nil
	}
	near, hint := nearestCommands(c, args[0]), ""
	if len(near) > 0 {
		hint = ": did you mean " + strings.Join(near, " or ") + "?"
	}
	if _, most := argumentNames(c.Use); most > 0 && len(near) == 0 {
		return nil
	}
	return usage("unknown command %q for %q%s (see %s --help)", args[0], c.CommandPath(), hint, c.CommandPath())
}

// argumentNames returns the names of the arguments that a usage line requires, and the largest number of arguments.
// Optional ones are in brackets, and "..." repeats one. A flag outside of brackets is followed by its value.
func argumentNames(use string) (required []string, most int) {
	words := strings.Fields(use)[1:]
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case strings.HasPrefix(word, "["):
			most++
			for i < len(words)-1 && !strings.HasSuffix(words[i], "]") {
				i++
			}
		case strings.HasPrefix(word, "--"):
			i++
		default:
			required = append(required, word)
		}
	}
	if strings.Contains(use, "...") {
		return required, math.MaxInt
	}
	return required, most + len(required)
}

// flagError describes an unknown flag or an invalid value. If the command before an unknown flag is unknown too, it
// describes only the command: the flag may be valid for the intended command.
func flagError(c *cobra.Command, err error) error {
	see := " (see " + c.CommandPath() + " --help)"
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if err := unknownCommand(c, c.Flags().Args()); err != nil {
			return err
		}
		hint := ""
		if near := nearestFlag(c, unknown.GetSpecifiedName()); near != "" {
			hint = ": did you mean --" + near + "?"
		}
		return usage("%w%s%s", err, hint, see)
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if errors.Is(err, strconv.ErrRange) {
			return usage("--%s %q: the number is out of range%s", invalid.GetFlag().Name, invalid.GetValue(), see)
		}
		if want := wanted(invalid.GetFlag().Value.Type()); want != "" {
			return usage("--%s %q: want %s%s", invalid.GetFlag().Name, invalid.GetValue(), want, see)
		}
	}
	return usage("%w%s", err, see)
}

// onlyDecimal makes a flag for a whole number accept decimal numbers only. pflag alone would read 010 as eight.
func onlyDecimal(f *pflag.Flag) {
	if strings.Contains(f.Value.Type(), "int") {
		f.Value = decimal{f.Value}
	}
}

type decimal struct{ pflag.Value }

func (d decimal) Set(text string) error {
	if digits := strings.TrimLeft(text, "+-"); len(digits) > 1 && digits[0] == '0' {
		return strconv.ErrSyntax
	}
	return d.Value.Set(text)
}

// wanted describes the values of a type of flag, or returns "".
func wanted(kind string) string {
	switch kind {
	case "int", "int32", "int64", "uint", "uint16", "uint32", "uint64":
		return "a whole number, such as 100"
	case "float64":
		return "a number, such as 0.5"
	case "duration":
		return "a duration, such as 30s or 15m"
	case "bool":
		return "true or false"
	}
	return ""
}

// nearestFlag returns the flag of c that resembles name most, or "".
func nearestFlag(c *cobra.Command, name string) string {
	nearest, best := "", math.MaxInt
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if d := spelling.Distance(name, f.Name); d < best && !f.Hidden && resembles(name, f.Name) {
			nearest, best = f.Name, d
		}
	})
	return nearest
}

// nearestCommands returns the subcommands of c that resemble name, begin with it, or have it in SuggestFor. If there
// are none, it returns the commands one level below that have this name, if there are at most three.
func nearestCommands(c *cobra.Command, name string) (near []string) {
	name = strings.ToLower(name)
	var below []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && (resembles(name, sub.Name()) || strings.HasPrefix(sub.Name(), name) ||
			slices.Contains(sub.SuggestFor, name)) {
			near = append(near, sub.Name())
		}
		for _, subsub := range sub.Commands() {
			if subsub.Name() == name {
				below = append(below, sub.Name()+" "+name)
			}
		}
	}
	if len(near) == 0 && len(below) <= 3 {
		return below
	}
	return near
}

// helpCommand prints the help of another command, and rejects an unknown one.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND...]",
		Short:   "Print the help of a command",
		Example: "  sluice help sale create",
		RunE: func(c *cobra.Command, args []string) error {
			found, rest, err := c.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return argsError(found, rest)
			}
			return found.Help()
		},
	}
}

// addAlias adds the name that many tools use for "list" or "remove" to such a command.
func addAlias(c *cobra.Command) {
	switch c.Name() {
	case "list":
		c.Aliases = append(c.Aliases, "ls")
	case "remove":
		c.Aliases = append(c.Aliases, "rm")
	}
}

func (p *program) versionCommand() *cobra.Command {
	c := &cobra.Command{
		Use:     "version",
		Short:   "Print the version, the commit and the version of Go",
		Example: "  sluice version\n  sluice version --json",
		RunE: func(*cobra.Command, []string) error {
			b := readBuild()
			return p.show(b, func(w io.Writer) { fmt.Fprintln(w, b) })
		},
	}
	p.flags(c).json(&p.json)
	return c
}
