package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"sluice/backend/redis/redisconn"
)

// redisNumbers returns numbers of a section of INFO.
func redisNumbers(ctx context.Context, c redisconn.Client, section string, names ...string) ([]float64, error) {
	info, err := c.Info(ctx, section).Result()
	numbers := make([]float64, len(names))
	for i, name := range names {
		_, text, _ := strings.Cut(info, "\n"+name+":")
		text, _, _ = strings.Cut(text, "\r")
		var wrong error
		numbers[i], wrong = strconv.ParseFloat(text, 64)
		err = errors.Join(err, wrong)
	}
	return numbers, err
}

// redisNumber returns a number of INFO.
func redisNumber(ctx context.Context, c redisconn.Client, section, name string) (float64, error) {
	numbers, err := redisNumbers(ctx, c, section, name)
	return numbers[0], err
}

// redisCPU returns the processor time that a Redis has used so far, in seconds.
func redisCPU(ctx context.Context, c redisconn.Client) (float64, error) {
	used, err := redisNumbers(ctx, c, "cpu", "used_cpu_sys", "used_cpu_user")
	return used[0] + used[1], err
}

// redisPID returns the process id of a Redis server.
func redisPID(s *stage, c redisconn.Client) int {
	pid, err := redisNumber(context.Background(), c, "server", "process_id")
	s.check(err)
	return int(pid)
}

// commandStats returns the numbers of calls of a Redis since its counts were reset, and the mean times of one in
// microseconds, by command. Commands that scripts call are counted.
func commandStats(ctx context.Context, c redisconn.Client) (calls, micros map[string]float64, err error) {
	info, err := c.InfoMap(ctx, "commandstats").Result()
	calls, micros = map[string]float64{}, map[string]float64{}
	for key, text := range info["Commandstats"] {
		name := strings.TrimPrefix(key, "cmdstat_")
		var n, all, each float64
		_, wrong := fmt.Sscanf(text, "calls=%g,usec=%g,usec_per_call=%g", &n, &all, &each)
		calls[name], micros[name], err = n, each, errors.Join(err, wrong)
	}
	return calls, micros, err
}
