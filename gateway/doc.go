// Package gateway is the edge in Go: an HTTP proxy on fasthttp that turns the flood away before it reaches a backend. It reads the same policy
// as the nginx edge, comes to the same verdicts, and answers with the same bytes.
//
// One request goes this way:
//
//	guard.go     the head is read strictly: what two parsers could understand differently never reaches a second one
//	path.go      the path is decoded once, for matching only; odd paths are refused
//	address.go   who asks: the peer, or what a trusted proxy says
//	repeat.go    a sale that is sold out as a whole? then the answer is in memory, and neither limits nor backends are asked
//	admit.go     per-IP rules, then the token, then rules per verified subject; all of them take the request, or none does
//	forward.go   the head that the backend gets
//	balance.go   which backend, and which next when it cannot be reached
//	exchange.go  one try at one backend
//	reply.go     what the edge itself says
//
// The package never imports backend: what the two share is in internal.
package gateway
