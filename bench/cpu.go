package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// meter reads the processor time of processes, which depends less on the load of the machine than wall-clock time.
type meter struct {
	names []string
	pids  []int
}

// newMeter counts processes, given as a name and an id each, and all below them.
func newMeter(processes ...any) *meter {
	m := &meter{}
	for pair := range slices.Chunk(processes, 2) {
		m.names, m.pids = append(m.names, pair[0].(string)), append(m.pids, pair[1].(int))
	}
	return m
}

// ticksPerSecond is the unit of /proc/*/stat on Linux.
const ticksPerSecond = 100

// spent is processor time.
type spent struct{ user, kernel time.Duration }

func (u spent) sum() time.Duration { return u.user + u.kernel }

// read returns the time used so far, by name as they were added, with that of children that have ended; a process that
// has exited counts as 0.
func (m *meter) read() []spent {
	used := make([]spent, len(m.pids))
	for i, top := range m.pids {
		for _, pid := range tree(top) {
			u := cpuOf(pid)
			used[i].user += u.user
			used[i].kernel += u.kernel
		}
	}
	return used
}

func cpuOf(pid int) spent {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return spent{}
	}
	// The second field is the name in parentheses, which may hold spaces; utime, stime, cutime and cstime are the 14th to
	// 17th.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 15 {
		return spent{}
	}
	ticks := func(field string) time.Duration {
		n, _ := strconv.ParseInt(field, 10, 64)
		return time.Duration(n) * time.Second / ticksPerSecond
	}
	return spent{ticks(fields[11]) + ticks(fields[13]), ticks(fields[12]) + ticks(fields[14])}
}

// each returns the cost of one of n answers since before.
func (m *meter) each(before []spent, n int64) string {
	var b strings.Builder
	for i, now := range m.read() {
		fmt.Fprintf(&b, "%s %.1f us  ", m.names[i], micros(now.sum()-before[i].sum(), n))
	}
	return strings.TrimSpace(b.String())
}

// micros returns a time in microseconds for each of n answers.
func micros(d time.Duration, n int64) float64 {
	return float64(d.Nanoseconds()) / 1e3 / float64(max(n, 1))
}

// tree is a process and all below it.
func tree(pid int) []int {
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pids[i]))
		for _, task := range tasks {
			b, _ := os.ReadFile(task)
			for _, f := range strings.Fields(string(b)) {
				if child, err := strconv.Atoi(f); err == nil {
					pids = append(pids, child)
				}
			}
		}
	}
	return pids
}
