package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"
)

// figures sums the metrics of the backends.
func (h *openHouse) figures(ctx context.Context, k openKind) (sum backendFigures, err error) {
	for _, admin := range h.admins {
		text, err := fetch(ctx, "http://"+admin+"/metrics", secret)
		if err != nil {
			return sum, err
		}
		lines := bufio.NewScanner(bytes.NewReader(text))
		for lines.Scan() {
			name, value, _ := strings.Cut(lines.Text(), " ")
			n, _ := strconv.ParseFloat(value, 64)
			switch name {
			case k.open:
				sum.Streams += int64(n)
			case k.limit:
				sum.limit += int64(n)
			case "go_goroutines":
				sum.Goroutines += int64(n)
			case "process_open_fds":
				sum.Files += int64(n)
			case "go_memstats_heap_alloc_bytes":
				sum.Live += int64(n)
			case "process_resident_memory_bytes":
				sum.Resident += int64(n)
			}
		}
		if err := lines.Err(); err != nil {
			return sum, err
		}
	}
	if sum.limit == 0 {
		return sum, fmt.Errorf("the backends do not export %s", k.limit)
	}
	return sum, nil
}

// collected is figures after every backend has collected its garbage.
func (h *openHouse) collected(ctx context.Context, k openKind) (backendFigures, error) {
	for _, admin := range h.admins {
		for range 3 { // what lies in a pool outlives one collection, and a half
			if _, err := fetch(ctx, "http://"+admin+"/debug/pprof/heap?gc=1", secret); err != nil {
				return backendFigures{}, err
			}
		}
	}
	return h.figures(ctx, k)
}
