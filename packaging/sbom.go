package main

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"runtime/debug"
	"time"
)

// sboms writes a CycloneDX document for each binary: the modules that are linked into it, and the Go release.
func (r Release) sboms(context.Context) error {
	for _, arch := range r.Archs {
		info, err := buildinfo.ReadFile(r.Binaries[arch])
		if err != nil {
			return err
		}
		doc, err := json.MarshalIndent(bom(info, r.Version, arch, r.Time), "", "  ")
		if err != nil {
			return err
		}
		if err := r.write("sluice_"+r.Version+"_"+arch+".cdx.json", append(doc, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// component is a component of CycloneDX 1.5.
type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl,omitempty"`
}

// document is the part of CycloneDX 1.5 that sboms writes.
type document struct {
	Format   string `json:"bomFormat"`
	Spec     string `json:"specVersion"`
	Version  int    `json:"version"`
	Metadata struct {
		Timestamp string    `json:"timestamp"`
		Component component `json:"component"`
	} `json:"metadata"`
	Components   []component  `json:"components"`
	Dependencies []dependency `json:"dependencies"`
}

type dependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

func bom(info *buildinfo.BuildInfo, version, arch string, at time.Time) document {
	d := document{Format: "CycloneDX", Spec: "1.5", Version: 1}
	d.Metadata.Timestamp = at.Format(time.RFC3339)
	d.Metadata.Component = component{Type: "application", Ref: "sluice-" + arch, Name: "sluice", Version: version}
	d.Components = []component{golang("std", info.GoVersion[len("go"):])}
	for _, module := range info.Deps {
		d.Components = append(d.Components, golang(effective(module).Path, effective(module).Version))
	}
	all := dependency{Ref: d.Metadata.Component.Ref, DependsOn: []string{}}
	for _, c := range d.Components {
		all.DependsOn = append(all.DependsOn, c.Ref)
	}
	d.Dependencies = []dependency{all}
	return d
}

// effective returns the module that is linked: the replacement, if there is one.
func effective(m *debug.Module) *debug.Module {
	if m.Replace != nil {
		return m.Replace
	}
	return m
}

func golang(path, version string) component {
	purl := "pkg:golang/" + path + "@" + version
	return component{Type: "library", Ref: purl, Name: path, Version: version, PURL: purl}
}
