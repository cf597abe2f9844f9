// Package rehearsal plays a crowd against a copy of a sale on a running set-up, through its edge, and says whether the set-up would stand the real one.
//
//	crowd.go    how many come, when, and what they do: the plan, drawn from a seed
//	person.go   what one of them does, request by request
//	line.go     a connection, from an address of its own where that is possible
//	tally.go    what was answered, how late, and when
//	run.go      the order of it all: make the copy, play, wait for the rows, check, remove
//	stage.go    what it asks of its caller; fault.go: what fails meanwhile
//	probe.go    how the crowd gets addresses of its own
//	judge.go    go, no-go or unclear, and why
//	report.go   what is written down; html.go and plot.go draw it
//
// It is an open model: requests are sent when their sender would send them, however slow the answers are, and every wait counts from that moment. It never touches
// Redis or SQL itself, and never a real sale: operators' calls are made by its caller, through Stage and Books.
package rehearsal
