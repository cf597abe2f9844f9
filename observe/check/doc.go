// Package check tests the alert rules and the dashboard with Prometheus's parser and query engine and with Grafana's
// published types. It is a separate module because the product does not need these dependencies.
package check
