// Package check tests the rules and the dashboard of the folder above with Prometheus' own parser and engine. It is a module of its own because those are large, and the
// product does not need them.
package check
