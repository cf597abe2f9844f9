// Command sluice is an admission gate for flash sales. It runs the edges, backends and workers, and it administers
// sales.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/lmittmann/tint"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"sluice/backend/redis/redisconn"
	"sluice/internal/assemble"
	"sluice/internal/slogctx"
)

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version = "dev"

// Exit codes.
const (
	exitOK    = 0
	exitFail  = 1 // the operation failed
	exitUsage = 2 // invalid flags, configuration or input
)

func main() {
	ctx, stop := untilSignal(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the program and returns its exit code. Its inputs and outputs are parameters, for tests.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	withFiles, err := checkInterruptibly(ctx, func() (func(string) string, error) { return withSecretFiles(getenv) })
	err = errors.Join(checkArguments(args), err)
	if err != nil {
		return report(stderr, err)
	}
	out := &visibleWriter{w: stdout}
	p := &program{getenv: withFiles, in: os.Stdin, stdout: stdout, out: out, errOut: stderr}
	p.interactive = term.IsTerminal(int(os.Stdin.Fd())) && p.onTerminal()
	root := p.root()
	root.SetArgs(args)
	root.SetOut(p.out)
	root.SetErr(stderr)
	ctx, stop := untilHangup(ctx, root, args)
	defer stop()
	cmd, err := root.ExecuteContextC(ctx)
	if isStopped(cmd, err) {
		err = nil
	}
	if failed := out.failed.Load(); failed != nil && (err == nil || errors.Is(err, *failed)) {
		err = fmt.Errorf("the output is incomplete (changes that the command made are kept): %w", *failed)
	}
	return report(stderr, err)
}

// report prints an error as one line, and returns the exit code.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	if !errors.Is(err, errReported) {
		fmt.Fprintln(stderr, "sluice: "+visible(oneLine(err)))
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	return exitFail
}

// checkArguments rejects an argument that is not UTF-8 text. In JSON it would become another text.
func checkArguments(args []string) error {
	if i := slices.IndexFunc(args, func(arg string) bool { return !utf8.ValidString(arg) }); i >= 0 {
		return usage("the argument %q is not UTF-8 text: convert it", args[i])
	}
	return nil
}

// program holds the inputs, outputs and settings that all commands share.
type program struct {
	getenv      func(string) string
	in          io.Reader
	interactive bool // in and errOut are a terminal
	stdout      io.Writer
	out, errOut io.Writer // out writes to stdout; the command fails if it cannot
	json        bool      // --json
	verbose     bool
	level       slog.LevelVar
	logFormat   string // --log
	makeLog     sync.Once
	log         *slog.Logger
}

// usageError is an error in the command line or its input: exit 2.
type usageError = assemble.UsageError

// errReported is an error that has been printed already.
var errReported error = usageError{Err: errors.New("see above")}

func usage(format string, args ...any) error { return usageError{Err: fmt.Errorf(format, args...)} }

func oneLine(err error) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(err.Error(), "\n", "; ")), " ")
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sluice",
		Short: "Admission gate for flash sales: exact stock, one unit per buyer, no lost order",
		Long: `sluice is an admission gate for flash sales. It rate-limits at the edge, sells each unit exactly
once, enforces a limit per buyer, and guarantees that every accepted order ends as a database row or
a dead letter.`,
		Example: `  sluice up                                  # everything in one process, no installation
  sluice sale create --id shoe --title Shoe --stock 100 --price 99.90EUR
  sluice sale audit shoe                     # count every unit`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	// Cobra's own flag uses text/template, which makes the linker keep a quarter of the program (ADR 49).
	showVersion := root.Flags().Bool("version", false, "version for sluice")
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *showVersion {
			_, err := fmt.Fprintln(p.out, readBuild())
			return err
		}
		return help(cmd, args)
	}
	root.PersistentFlags().BoolVarP(&p.verbose, "verbose", "v", false, "log at debug level")
	root.PersistentFlags().StringVar(&p.logFormat, "log", logAuto,
		"format of the log: text, json, or auto (text on a terminal, else json)")
	o := &adminClient{p: p}
	root.PersistentPreRunE = func(c *cobra.Command, _ []string) error {
		o.running = c.Flags()
		return cmp.Or(p.checkLog(), checkServer(c))
	}
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		p.upCommand(), p.gatewayCommand(), p.edgeCommand(), p.backendCommand(), p.workerCommand(), p.watcherCommand(),
		p.tokenCommand(), p.keysCommand(), o.saleCommand(), o.orderCommand(), o.paymentCommand(), o.deadCommand(),
		o.queueCommand(), o.shardCommand(), p.benchCommand(), o.rehearseCommand(), o.groupCommand(), o.webhookCommand(),
		p.policyCommand(), p.healthCommand(), p.manualCommand(), p.versionCommand())
	root.SetHelpCommand(helpCommand())
	addCompletion(root)
	forAll(root, func(c *cobra.Command) {
		addAlias(c)
		wrapArgs(c)
		o.completeArgs(c)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			onlyDecimal(f)
			shortDefault(f)
		})
	})
	return root
}

func forAll(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		forAll(sub, do)
	}
}

func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// parent adds subcommands to c. If c has no function of its own, it prints its help when it is run without a
// subcommand.
func parent(c *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	if c.RunE == nil {
		c.RunE = help
	}
	c.AddCommand(subs...)
	return c
}

// wrapArgs makes c reject empty arguments, and then run its own check. A command without a check of its own accepts the
// arguments that its usage line names.
func wrapArgs(c *cobra.Command) {
	check := c.Args
	if check == nil {
		check = checkArgs
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		if slices.Contains(args, "") { // usually from a variable of the shell that is not set
			return usage("an argument is empty: want %s", cmd.UseLine())
		}
		return check(cmd, args)
	}
}

// Values of --log.
const (
	logAuto = "auto"
	logText = "text"
	logJSON = "json"
)

// checkLog applies --verbose and rejects an unknown value of --log.
func (p *program) checkLog() error {
	if p.verbose {
		p.level.Set(slog.LevelDebug)
	}
	switch p.logFormat {
	case logAuto, logText, logJSON:
		return nil
	}
	return usage("--log %q: want text, json or auto", p.logFormat)
}

// checkServer rejects an empty --server of any command: it would use the server of the data directory.
func checkServer(c *cobra.Command) error {
	var bad problems
	if server := c.Flags().Lookup("server"); server != nil {
		bad.checkFilled(server)
	}
	return bad.err()
}

// logger returns the logger that all parts of the program share: several loggers could mix their lines. It must not be
// called before the flags are parsed.
func (p *program) logger() *slog.Logger {
	p.makeLog.Do(func() { p.log = p.newLogger() })
	return p.log
}

// newLogger writes to standard error: JSON lines, which systemd and containers expect, or text for a terminal.
func (p *program) newLogger() *slog.Logger {
	var lines slog.Handler = slog.NewJSONHandler(p.errOut, &slog.HandlerOptions{Level: &p.level, ReplaceAttr: withUnit})
	if p.logsText() {
		plain := !p.onTerminal() || p.getenv("NO_COLOR") != ""
		lines = tint.NewTextHandler(p.errOut, &tint.Options{Level: &p.level, TimeFormat: time.TimeOnly, NoColor: plain})
	}
	log := slog.New(slogctx.Handler(lines))
	redisconn.Quiet(log)
	return log
}

// withUnit returns a duration as text, such as 1.5s. slog writes a number of nanoseconds to JSON.
func withUnit(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func (p *program) logsText() bool {
	return p.logFormat == logText || p.logFormat == logAuto && p.onTerminal()
}

// quietStart suppresses info messages until loud is called. It affects only logs in text form at the default level.
func (p *program) quietStart() (loud func()) {
	before := p.level.Level()
	if p.logsText() && before == slog.LevelInfo {
		p.level.Set(slog.LevelWarn)
	}
	return func() { p.level.Set(before) }
}
