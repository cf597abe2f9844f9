// Package chaos runs the real parts under faults: processes of the sluice binary over a durable Redis and a durable PostgreSQL, buyers who ask again and again, an
// operator at work, and a schedule of kills, freezes, cut connections and a full disk that is drawn from a seed. Then it reads both stores by ways of its own and
// compares them with what buyers and the operator were told.
//
// TestSeveralMachines does the same over machines that are network namespaces, and cuts them off without a word.
//
// It is a module of its own because of the proxy and the plotting library, which the program does not need.
package chaos
