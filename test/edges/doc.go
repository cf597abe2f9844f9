// Package edges holds the tests that the two edges, nginx and the Go gateway, are one to their clients and to the backend: the same requests go
// through both, and what comes out on either side is compared byte for byte. It has no code of its own.
package edges
