package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/google/pprof/profile"
)

// guide merges CPU profiles into the one that the compiler reads (go build -pgo).
func guide(_ context.Context, _ *stage, args []string) error {
	flags := flag.NewFlagSet("pgo", flag.ContinueOnError)
	to := flags.String("o", "", "file to write")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return err
	} else if err != nil {
		return usageError(err.Error())
	}
	if *to == "" || flags.NArg() == 0 {
		return usageError("want -o FILE and at least one profile")
	}
	var all []*profile.Profile
	for _, name := range flags.Args() {
		p, err := readProfile(name)
		if err != nil {
			return err
		}
		all = append(all, p)
	}
	merged, err := mergeForCompiler(all)
	if err != nil {
		return err
	}
	return writeProfile(*to, merged)
}

// profiled runs run and adds the CPU profile of a backend meanwhile to a file; without a name there is none.
func profiled(ctx context.Context, admin, name string, length time.Duration, run func() error) error {
	if name == "" {
		return run()
	}
	added := make(chan error, 1)
	go func() { added <- addProfile(ctx, admin, name, length) }()
	return errors.Join(run(), <-added)
}

// addProfile adds the CPU profile of a backend over a time to a file.
func addProfile(ctx context.Context, admin, name string, length time.Duration) error {
	text, err := fetch(ctx, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%.0f", admin, length.Seconds()), secret)
	if err != nil {
		return err
	}
	sum, err := profile.ParseData(text)
	if err != nil {
		return err
	}
	if _, err := os.Stat(name); err == nil {
		before, err := readProfile(name)
		if err != nil {
			return err
		}
		if sum, err = profile.Merge([]*profile.Profile{before, sum}); err != nil {
			return err
		}
	}
	return writeProfile(name, sum)
}

func writeProfile(name string, p *profile.Profile) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(f), f.Close())
}

func readProfile(name string) (*profile.Profile, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	p, err := profile.ParseData(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// mergeForCompiler gives each profile the same weight, independent of its duration, and removes the paths of the
// machine that recorded it: the compiler uses names and lines.
func mergeForCompiler(profiles []*profile.Profile) (*profile.Profile, error) {
	for _, p := range profiles {
		var total int64
		for _, s := range p.Sample {
			total += s.Value[len(s.Value)-1]
		}
		if total == 0 {
			return nil, errors.New("a profile holds no samples: was there any load?")
		}
		const weight = 1e13 // so large that no sample is rounded to zero
		p.Scale(weight / float64(total))
		for _, f := range p.Function {
			f.Filename = ""
		}
		for _, l := range p.Location {
			l.Address = 0
			l.Mapping = nil
		}
		p.Mapping = nil
		p.Comments = nil
	}
	return profile.Merge(profiles)
}
