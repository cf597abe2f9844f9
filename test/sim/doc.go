// Package sim runs whole sales inside one process under a fake clock: the product's admission, queue, worker,
// watcher, admin, audit, rebuild and store, over an embedded Redis with the real scripts and SQLite. Every call to
// either store can fail before or after it took effect, take effect twice, or take effect long after its caller gave
// up. Every process can crash or freeze past its lease at each call. Redis can start again with less data than it
// had. One seed decides everything, so a failure is reproduced from its seed.
//
// It does not cover the network, the clients' own retries, or a database that loses what it has acknowledged.
package sim
