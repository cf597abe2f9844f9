// Package spread simulates sales over many segments. The crowd simulation measures the refill policy of backend/spread:
// how many units move, and how long buyers wait. It has no stores: a transfer is a delay.
package spread
