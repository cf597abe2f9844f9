# The targets that a contributor needs. `make help` lists them; CONTRIBUTING.md explains when to use which.
SHELL := /bin/bash
.DEFAULT_GOAL := help
GO ?= go

# Objects without the directory of the clone: a build of another clone finds them in the cache.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath)

# list prints the targets of a file that have a description after "##".
list = awk -F ':.*\#\# ' -v bold="$$(test -t 1 && printf '\033[1m')" -v plain="$$(test -t 1 && printf '\033[0m')" \
	'/^[a-z0-9 -]+:.*\#\# / {printf "  %s%-17s%s %s\n", bold, $$1, plain, $$2}'

help: # lists the targets
	@$(list) Makefile
	@echo
	@echo "  make help-bench lists the benchmarks, make help-proof the long tests."
	@echo "  Generated files: make commands (docs/commands.md), make pictures (docs/pictures), make profile (cmd/sluice/release.pgo)."

up: ## run everything in one process with a demo sale
	$(GO) run ./cmd/sluice up

build: ## build bin/sluice with its profile; the first build compiles every dependency and takes two to four minutes
	CGO_ENABLED=0 $(GO) build -trimpath -pgo=cmd/sluice/release.pgo -o bin/sluice ./cmd/sluice

install: ## install what the tests need (on Debian, as root): nginx, ngx_lua, Redis, PostgreSQL, PgBouncer, Chromium, Node.js and the linters
	@sh .ci/install

# BASE is the commit with which the working tree is compared, by default the merge base with main.
check: ## check what has changed in about a minute: format, lint, unit tests, documents (BASE=commit)
	@bash .ci/check $(BASE)

test: install ## run everything: lint, unit tests with the race detector, end-to-end, browser and load tests
	@echo "$(PARTS): $(AT_ONCE) in parallel; each is printed when it ends"
	+@sh .ci/in-memory $(MAKE) --no-print-directory -j$(AT_ONCE) $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) $(PARTS)

lint: ## run gofmt, vet, staticcheck and other linters for Go, luacheck, shellcheck
	@bash .ci/lint

unit: race $(if $(ONLY),,plain) ## run the unit tests, with the race detector for Go (ONLY=./backend/... for only these packages)

e2e: ## run the end-to-end tests with nginx, the Go gateway, Redis and PostgreSQL
	$(GO) test -count=1 -vet=off -parallel $(PACKAGES) -timeout 30m ./test/e2e
	cd test/chaos && $(GO) test -count=1 -vet=off -timeout 10m .

bench: install-bench ## measure the whole path against named baselines (five minutes)
	cd bench && $(GO) run . speed --only purchase,table,edge,orders,queue

fuzz: ## run every fuzz target for ten seconds
	@for p in $$($(GO) list ./... ); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep ^Fuzz); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime 10s -fuzzminimizetime 1x $$p || exit 1; done; done

# The parts of `make test`. Most of their time is spent waiting for servers, leases and browsers, so three parts run in parallel,
# and within each part one package more than there are processors. The parts share no state. The longest begin; browser waits
# most of its time.
PARTS = race e2e browser plain lint k6 clients
AT_ONCE ?= 3
PACKAGES ?= $(shell expr 1 + $$(getconf _NPROCESSORS_ONLN))

# The race detector does not instrument SQLite (C translated to Go) and the Lua interpreter of the embedded Redis:
# with instrumentation they take many times as long. A library that uses generic types of package sync, such as sync.Map, must not be
# in this list: the linker would use its uninstrumented copy in the whole program and report races that do not exist.
UNWATCHED = modernc.org/sqlite/lib github.com/yuin/gopher-lua/...
RACE = -race $(foreach library,$(UNWATCHED),-gcflags=$(library)=-race=false)

# A program with the race detector sleeps for a second before it exits, so that other threads can report races. There are seventy
# test programs, and a tenth of a second is enough for them.
# With -short the simulations play a few seeds and loads; the target plain plays all of them.
race:
	GORACE="atexit_sleep_ms=100 $$GORACE" $(GO) test $(RACE) -count=1 -short -vet=off -p $(PACKAGES) -timeout 20m $(or $(ONLY),$$($(GO) list ./... | grep -v -e /test/e2e -e /nginx$$))

# The race detector cannot observe Lua in nginx. The Go code that starts and stops nginx runs with it in test/edges.
plain:
	$(GO) test -count=1 -vet=off -p $(PACKAGES) -timeout 20m ./nginx ./test/sim ./internal/fleetlimit
	cd observe/check && $(GO) test -count=1 -timeout 10m ./...
	cd packaging && $(GO) test -count=1 -vet=off -timeout 10m .
	cd bench && $(GO) test -count=1 -vet=off -short -timeout 10m .

browser:
	cd test/browser && $(GO) test -count=1 -vet=off -timeout 20m .

# An honest shop passes the load tests, and each kind of fraud fails them. Builds k6 once.
k6:
	cd loadtest && $(GO) test -count=1 -vet=off -timeout 20m ./...

# Lints docs/openapi.yaml, generates clients from it, compiles them and buys with each.
clients: test/clients/node_modules/.package-lock.json ## generate clients from docs/openapi.yaml and buy with each (twenty seconds; needs npm)
	cd test/clients && $(GO) generate . && $(GO) test -count=1 -vet=off -tags generated -timeout 10m .

test/clients/node_modules/.package-lock.json: test/clients/package-lock.json
	@command -v npm >/dev/null || { echo "clients: npm is not installed: run make install" >&2; exit 1; }
	cd test/clients && npm ci --no-audit --no-fund --loglevel=error

release: ## make a release in dist/: packages, chart, Lua packages, SBOM, notes, checksums (VERSION=1.2.3 OUT=directory ARCH=amd64,arm64)
	cd packaging && $(GO) run . --version "$(VERSION)" --out "$(abspath $(or $(OUT),dist))" $(if $(ARCH),--arch "$(ARCH)")

# Generated files.
commands:
	$(GO) run ./cmd/sluice manual > docs/commands.md.new && mv docs/commands.md.new docs/commands.md

pictures: install
	@sh .ci/install fonts-wqy-zenhei
	mkdir -p docs/pictures && cd test/browser && $(GO) test -count=1 -v -timeout 10m -run 'TestPictures' . -pictures $(CURDIR)/docs/pictures

profile: install-bench
	d=$$(mktemp -d) && cd bench && $(GO) run . speed --only gateway,purchase,orders --rounds 2 --seconds 5 --profile $$d && \
	  $(GO) run . pgo -o ../cmd/sluice/release.pgo $$d/*.cpu.pprof && rm -r $$d

include bench/bench.mk test/proof.mk

.PHONY: help up build release install check test lint unit e2e bench fuzz race plain browser k6 clients commands pictures profile
