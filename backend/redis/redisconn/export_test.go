package redisconn

import "time"

// SetSentinelTimeout sets the timeout of queries to the Sentinels, for busy machines.
func (s *Server) SetSentinelTimeout(timeout time.Duration) {
	s.master.finder.(*sentinels).timeout = timeout
}
