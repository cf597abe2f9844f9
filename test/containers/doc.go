// Package containers starts docker-compose.yml: it builds the Dockerfile and starts the stack, sells, kills, reloads,
// scales and monitors it, and removes it.
//
// It needs no registry and leaves nothing behind. The test's own Docker engine runs in namespaces, so that its
// networks, published ports and processes are invisible outside and end with the test. The images are built from this
// machine's own programs, see images_test.go: with the names of the published images, and the users, directories and
// entry points that the files rely on. Differences of the published images are not covered. Grafana is omitted, because
// this machine has no package of it.
//
// It is a module of its own because of docker compose, which is a large program.
package containers
