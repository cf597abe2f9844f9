// Package sim runs whole sales inside one process under a fake clock: the admission, queue, worker, watcher, desk, ledger, rebuild and order store of the
// product itself, over an embedded Redis with the real scripts and SQLite. Every call to either store can fail before or after it took effect,
// take effect twice or long after its caller gave up, and every process can stop for good or freeze past its lease at each of them; Redis can start again
// with less than it had. One seed decides everything, so a failure comes again from its seed.
//
// It proves nothing about the network, the clients' own retries, or a database that loses what it has acknowledged.
package sim
