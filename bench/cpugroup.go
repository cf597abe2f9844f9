package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// cpuGroup is a control group that limits the processor time of its processes.
type cpuGroup string // its directory

const (
	cgroupV1 = "/sys/fs/cgroup/cpu"
	cgroupV2 = "/sys/fs/cgroup"
	quota    = 1000 // microseconds per time slice, the smallest that the kernel accepts
)

var errNoCgroup = errors.New(
	"the masters cannot be limited: run as root on a machine with a writable cgroup of the cpu controller",
)

// newCPUGroup creates a group that gets a share of one core.
func newCPUGroup(name string, share float64) (cpuGroup, error) {
	slice := strconv.Itoa(int(quota / share))
	if _, err := os.Stat(cgroupV1); err == nil {
		g := cpuGroup(filepath.Join(cgroupV1, name))
		err := errors.Join(os.Mkdir(string(g), 0o755), g.write("cpu.cfs_period_us", slice),
			g.write("cpu.cfs_quota_us", strconv.Itoa(quota)))
		if err != nil {
			return "", fmt.Errorf("%w: %w", errNoCgroup, err)
		}
		return g, nil
	}
	g := cpuGroup(filepath.Join(cgroupV2, name))
	if err := errors.Join(os.Mkdir(string(g), 0o755), g.write("cpu.max", strconv.Itoa(quota)+" "+slice)); err != nil {
		return "", fmt.Errorf("%w: %w", errNoCgroup, err)
	}
	return g, nil
}

func (g cpuGroup) write(file, text string) error {
	return os.WriteFile(filepath.Join(string(g), file), []byte(text), 0o644)
}

func (g cpuGroup) add(pid int) error { return g.write("cgroup.procs", strconv.Itoa(pid)) }

func (g cpuGroup) remove() { _ = os.Remove(string(g)) }

// periods returns the number of time slices so far, and the number in which the group used up its share.
func (g cpuGroup) periods() (all, throttled int64, err error) {
	text, err := os.ReadFile(filepath.Join(string(g), "cpu.stat"))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "nr_periods":
			all, err = strconv.ParseInt(value, 10, 64)
		case "nr_throttled":
			throttled, err = strconv.ParseInt(value, 10, 64)
		}
		if err != nil {
			return 0, 0, err
		}
	}
	return all, throttled, nil
}
