// Package edges tests that the two edges, nginx and the Go gateway, behave the same toward clients and the backend:
// the same requests go through both, and both sides are compared byte for byte. It contains only tests.
package edges
