package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
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

// read returns the time used so far, by name as they were added; a process that is gone counts as 0.
func (m *meter) read() []time.Duration {
	used := make([]time.Duration, len(m.pids))
	for i, top := range m.pids {
		for _, pid := range tree(top) {
			used[i] += cpuOf(pid)
		}
	}
	return used
}

func cpuOf(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the name in parentheses, which may hold spaces; utime and stime are the 14th and 15th.
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, _ := strconv.ParseInt(f, 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// each returns the cost of one of n answers since before.
func (m *meter) each(before []time.Duration, n int64) string {
	var b strings.Builder
	for i, now := range m.read() {
		fmt.Fprintf(&b, "%s %.1f us  ", m.names[i], float64((now-before[i]).Nanoseconds())/1e3/float64(max(n, 1)))
	}
	return strings.TrimSpace(b.String())
}

// redisPID returns the process id of a Redis server.
func redisPID(s *stage, client *redis.Client) int {
	info, err := client.InfoMap(context.Background(), "server").Result()
	s.check(err)
	pid, err := strconv.Atoi(info["Server"]["process_id"])
	s.check(err)
	return pid
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
