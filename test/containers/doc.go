// Package containers starts docker-compose.yml: the Dockerfile is built, everything is brought up, sells, is killed,
// reloaded, scaled and watched, and is taken down again.
//
// It needs no registry and leaves nothing behind. The test's own Docker engine runs in namespaces, so that its
// networks, published ports and processes are invisible outside and end with the test. The images are built from this
// machine's own programs, see images_test.go: with the names of the published images, and the users, directories and
// entry points that the files rely on. Differences of the published images are not covered. Grafana is left out,
// because no package of it exists here.
//
// It is a module of its own because of docker compose, which is a large program.
package containers
