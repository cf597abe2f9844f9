package redisconn

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
)

// areAddresses reports whether each text is host:port.
func areAddresses(all []string) bool {
	for _, addr := range all {
		host, port, err := net.SplitHostPort(addr)
		n, wrong := strconv.ParseUint(port, 10, 16)
		if err != nil || wrong != nil || host == "" || n == 0 {
			return false
		}
	}
	return true
}

// distinct returns the addresses of all lists, each once.
func distinct(lists ...[]string) []string {
	addrs := slices.Concat(lists...)
	slices.Sort(addrs)
	return slices.Compact(addrs)
}

// queryMost queries all addresses concurrently. It returns the first answers as soon as there are enough, so a server
// that is down does not delay it. If there are not enough, it returns all answers when every query has ended. It
// returns an error if there is no answer.
func queryMost[T any](addrs []string, enough int, query func(addr string) (T, error)) (answers []T, err error) {
	type reply struct {
		answer T
		err    error
	}
	replies := make(chan reply, len(addrs))
	for _, addr := range addrs {
		go func() {
			a, err := query(addr)
			if err != nil {
				err = fmt.Errorf("%s: %w", addr, err)
			}
			replies <- reply{a, err}
		}()
	}
	var failed []error
	for range addrs {
		r := <-replies
		if r.err != nil {
			failed = append(failed, r.err)
			continue
		}
		if answers = append(answers, r.answer); len(answers) == enough {
			break
		}
	}
	if len(answers) == 0 {
		return nil, errors.Join(failed...)
	}
	return answers, nil
}
