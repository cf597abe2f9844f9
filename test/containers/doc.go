// Package containers starts docker-compose.yml: the Dockerfile is built, everything is brought up, sells, is killed, reloaded, scaled and watched, and is taken down again.
//
// It asks for no registry and leaves nothing behind. A Docker engine of its own runs in namespaces of its own, so that its networks, its published ports and all that it
// starts are seen by nobody and end with the test. The images that the files name are made of this machine's own programs, see images_test.go: of the same names, with
// the same users, folders and entry points, as far as the files rely on them. What they cannot show is whether the published images differ; Grafana is left out, since
// there is none to take.
//
// It is a module of its own because of docker compose, which is a large program.
package containers
