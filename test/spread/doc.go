// Package spread simulates sales over many segments, with the policy and the protocol of backend/spread.
//
// The crowd simulation (crowd.go) measures the refill policy: how many units move, and how long buyers wait. It has no
// stores: a transfer is a delay.
//
// The simulation of moves (world.go) checks the protocol: processes run over a model of both stores with faults at every
// call. One seed decides everything, so a failure is reproduced from its seed.
package spread
