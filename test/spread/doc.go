// Package spread simulates sales over many segments, with the policy and the protocol of backend/spread.
//
// The crowd simulation (crowd.go) measures the refill policy: how many units move, and how long buyers wait. It has no
// stores: a transfer is a delay.
//
// The simulation of moves (world.go) checks the protocol: processes run over a model of both stores (model.go) with
// faults at every call. A test plays the same over the real scripts and statements, and compares them with the model.
// One seed decides everything, so a failure is reproduced from its seed.
package spread
