package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/google/pprof/profile"
)

// guide makes of CPU profiles the one that the compiler is given (go build -pgo).
func guide(args []string) error {
	flags := flag.NewFlagSet("pgo", flag.ContinueOnError)
	to := flags.String("o", "", "file to write")
	if err := flags.Parse(args); err != nil {
		return errOf(err)
	}
	if *to == "" || flags.NArg() == 0 {
		return usageError("-o FILE and one profile at least are needed")
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
	f, err := os.Create(*to)
	if err != nil {
		return err
	}
	return errors.Join(merged.Write(f), f.Close())
}

func readProfile(name string) (*profile.Profile, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := profile.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

// mergeForCompiler gives each profile the same weight, however long it ran, and removes the paths of the machine that
// recorded it: the compiler uses names and lines.
func mergeForCompiler(profiles []*profile.Profile) (*profile.Profile, error) {
	for _, p := range profiles {
		var total int64
		for _, s := range p.Sample {
			total += s.Value[len(s.Value)-1]
		}
		if total == 0 {
			return nil, errors.New("a profile holds no samples: was there any load?")
		}
		const weight = 1e13 // so large that no sample is rounded to nothing
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
