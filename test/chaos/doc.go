// Package chaos runs the product under faults: processes of the sluice binary over a durable Redis and a durable
// PostgreSQL, buyers that retry, an admin at work, and a schedule of kills, freezes, cut connections and a full disk
// drawn from a seed. Then it reads both stores directly and compares them with the answers that buyers and the admin
// received.
//
// TestSeveralMachines does the same over machines that are network namespaces, and cuts them off without notice.
//
// It is a module of its own because of the proxy and the plotting library, which the program does not need.
package chaos
