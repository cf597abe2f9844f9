package redisconn

import "time"

// Patient lets Sentinels take this long, for machines that are busy.
func (s *Server) Patient(timeout time.Duration) { s.master.sentinels.timeout = timeout }
