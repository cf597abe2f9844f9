package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"maps"
	"slices"
	"time"
)

// archive maps paths, with forward slashes, to contents.
type archive map[string][]byte

// tarGz returns an archive with the files in order of their paths, all with the same owner, mode and time.
func (f archive) tarGz(at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(f)) {
		header := &tar.Header{
			Name:    name,
			Mode:    0o644,
			Size:    int64(len(f[name])),
			ModTime: at,
			Format:  tar.FormatUSTAR,
			Uname:   "root",
			Gname:   "root",
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return compressed(out.Bytes(), at), nil
}

// zip is like tarGz, in the zip format.
func (f archive) zip(at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(f)) {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: at}
		header.SetMode(0o644)
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
