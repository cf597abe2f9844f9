package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// chart makes an archive of the Helm chart, with the version of the release.
func (r Release) chart(context.Context) error {
	root := filepath.Join(r.Root, "packaging/chart/sluice")
	all := archive{}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if name == "Chart.yaml" {
			text = []byte(strings.ReplaceAll(string(text), "0.0.0", r.Version))
		}
		all["sluice/"+filepath.ToSlash(name)] = text
		return nil
	})
	if err != nil {
		return err
	}
	packed, err := all.tarGz(r.Time)
	if err != nil {
		return err
	}
	return r.write("sluice-"+r.Version+".tgz", packed)
}
