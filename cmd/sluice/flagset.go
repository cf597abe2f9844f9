package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sluice/internal/duration"
)

// problems collects all errors of a command line, so that they are reported together.
type problems []string

func (m *problems) add(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(*m, text) {
		*m = append(*m, text)
	}
}

func (m *problems) check(setting string, err error) {
	if err != nil {
		m.add("%s: %v", setting, err)
	}
}

func (m problems) err() error {
	if len(m) == 0 {
		return nil
	}
	return usage("%s", strings.Join(m, "; "))
}

// flagSet declares the flags of one command, and checks of their values. The checks run before the command.
type flagSet struct {
	*pflag.FlagSet
	getenv func(string) string
	checks []func(bad *problems)
}

// flags returns the flags of a command itself, not of its subcommands.
func (p *program) flags(c *cobra.Command) *flagSet {
	f := &flagSet{FlagSet: c.Flags(), getenv: p.getenv}
	c.PreRunE = func(cmd *cobra.Command, _ []string) error {
		_, err := checkInterruptibly(cmd.Context(), func() (_ struct{}, err error) {
			var bad problems
			for _, check := range f.checks {
				check(&bad)
			}
			return struct{}{}, bad.err()
		})
		return err
	}
	return f
}

func (f *flagSet) check(check func(bad *problems)) { f.checks = append(f.checks, check) }

// env returns the value of a variable, and the help of its flag with the variable's name.
func (f *flagSet) env(name, help string) (value, helpWithName string) {
	if name == "" {
		return "", help
	}
	return f.getenv(name), help + " [" + name + "]"
}

// source returns the name of what set a value, for messages: the variable env, or the flag.
func (f *flagSet) source(name, env string) string {
	if f.getenv(env) != "" && !f.Changed(name) {
		return env
	}
	return "--" + name
}

// str declares a string with its default from the variable env, if that is not empty. The help shows def, because a
// variable may contain a password.
func (f *flagSet) str(to *string, name, env, def, help string) {
	value, help := f.env(env, help)
	f.StringVar(to, name, cmp.Or(value, def), help)
	f.Lookup(name).DefValue = def
}

// filled rejects empty values of flags, which usually come from a variable of a script that is not set.
func (f *flagSet) filled(names ...string) {
	f.check(func(bad *problems) {
		for _, name := range names {
			bad.checkFilled(f.Lookup(name))
		}
	})
}

func (m *problems) checkFilled(flag *pflag.Flag) {
	empty := flag.Value.String() == ""
	if list, is := flag.Value.(pflag.SliceValue); is {
		empty = len(list.GetSlice()) == 0
	}
	if flag.Changed && empty {
		m.add("--%s is empty: name a value, or leave it out", flag.Name)
	}
}

// list declares a repeatable string, with its default from a variable, separated by commas.
func (f *flagSet) list(to *[]string, name, env, help string) {
	value, help := f.env(env, help)
	f.StringArrayVar(to, name, items(value), help)
	f.Lookup(name).DefValue = "[]"
}

func items(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// number declares an integer between two bounds, with its default from the variable env, if that is not empty.
func (f *flagSet) number(to *int, name, env string, def, least, most int, help string) {
	_, help = f.env(env, help)
	f.IntVar(to, name, def, help)
	bounded(f, to, name, env, "a whole number", least, most)
}

func (f *flagSet) duration(to *time.Duration, name, env string, def, least, most time.Duration, help string) {
	_, help = f.env(env, help)
	f.DurationVar(to, name, def, help)
	bounded(f, to, name, env, "a duration such as 30s", least, most)
}

// share declares a share between least and 1.
func (f *flagSet) share(to *float64, name string, def, least float64, help string) {
	f.Float64Var(to, name, def, help)
	bounded(f, to, name, "", "", least, 1)
}

// bounded checks the bounds of a flag, after it has set the flag to the value of the variable env, unless that is
// empty. kind describes the values of the flag. A most of zero is no upper bound.
func bounded[T cmp.Ordered](f *flagSet, value *T, name, env, kind string, least, most T) {
	text, _ := f.env(env, "")
	var invalid error
	if text != "" {
		flag := f.Lookup(name)
		onlyDecimal(flag)
		invalid = flag.Value.Set(text)
	}
	var none T
	f.check(func(bad *problems) {
		inside := least <= *value && (most == none || *value <= most) // false for NaN
		switch {
		case text != "" && !f.Changed(name):
			if invalid != nil || !inside {
				bad.add("%s=%s: want %s, %s", env, text, kind, bounds(least, most))
			}
		case !inside:
			bad.add("--%s must be %s", name, bounds(least, most))
		}
	})
}

// bounds describes the values from least to most. A most of zero is no upper bound.
func bounds[T cmp.Ordered](least, most T) string {
	var none T
	switch {
	case most != none:
		return fmt.Sprintf("between %s and %s", boundText(least), boundText(most))
	case any(least) == any(time.Nanosecond):
		return "positive, such as 10m"
	}
	return "at least " + boundText(least)
}

// boundText formats a bound as a user would type it: durations without zero parts, numbers without an exponent.
func boundText[T cmp.Ordered](bound T) string {
	switch v := any(bound).(type) {
	case time.Duration:
		return duration.Text(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(bound)
}

// shortDefault shows the default of a flag for a duration without zero parts.
func shortDefault(f *pflag.Flag) {
	if d, err := time.ParseDuration(f.DefValue); err == nil && f.Value.Type() == "duration" {
		f.DefValue = duration.Text(d)
	}
}

// oneOf declares a string of a few values, which are completed.
func (f *flagSet) oneOf(c *cobra.Command, to *string, name, env, def, help string, values ...string) {
	f.str(to, name, env, def, help)
	f.check(func(bad *problems) {
		last := len(values) - 1
		switch want := strings.Join(values[:last], ", ") + " or " + values[last]; {
		case *to == def || slices.Contains(values, *to):
		case env != "" && !f.Changed(name):
			bad.add("%s=%s: want %s", env, *to, want)
		default:
			bad.add("--%s %q: want %s", name, *to, want)
		}
	})
	fixed := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
	if err := c.RegisterFlagCompletionFunc(name, fixed); err != nil {
		panic(err) // the flag does not exist: a programming error
	}
}
