package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// chart builds an archive of the Helm chart, with the version of the release.
func (r Release) chart(context.Context) error {
	chart := os.DirFS(filepath.Join(r.Root, "packaging/chart/sluice"))
	all := archive{}
	err := fs.WalkDir(chart, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(chart, name)
		if err != nil {
			return err
		}
		if name == "Chart.yaml" {
			text = []byte(strings.ReplaceAll(string(text), "0.0.0", r.Version))
		}
		all["sluice/"+name] = text
		return nil
	})
	if err != nil {
		return err
	}
	return r.writeTarGz("sluice-"+r.Version+".tgz", all)
}
