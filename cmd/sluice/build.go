package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"` // "" if it was built without the repository
	Modified bool   `json:"modified"`         // the work tree had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Commit = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	return b
}

func (b build) String() string {
	commit := "unknown commit"
	if b.Commit != "" {
		commit = "commit " + b.Commit[:min(len(b.Commit), 12)]
		if b.Modified {
			commit += " with changes"
		}
	}
	return fmt.Sprintf("sluice %s (%s, %s, %s)", b.Version, commit, b.Go, b.Platform)
}
