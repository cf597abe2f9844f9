# `make` or `make help` lists what there is.
SHELL := /bin/bash
.DEFAULT_GOAL := help
GO ?= go
RUSH_REQUESTS ?= 200000

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9 -]+:.*## / {printf "  \033[1m%-16s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: ## everything in one process, with a demo sale
	$(GO) run ./cmd/sluice up

build: ## bin/sluice, compiled along a profile; the first time that compiles every dependency anew, two to four minutes
	CGO_ENABLED=0 $(GO) build -trimpath -pgo=cmd/sluice/release.pgo -o bin/sluice ./cmd/sluice

commands: ## docs/commands.md anew, from what the program says of itself
	$(GO) run ./cmd/sluice manual --markdown > docs/commands.md.new && mv docs/commands.md.new docs/commands.md

profile: install-bench ## cmd/sluice/release.pgo anew, from the benchmarks of gateway and purchase
	d=$$(mktemp -d) && cd bench && $(GO) run . speed --only gateway,purchase --rounds 2 --seconds 5 --profile $$d && \
	  $(GO) run . pgo -o ../cmd/sluice/release.pgo $$d/gateway.cpu.pprof $$d/purchase.cpu.pprof && rm -r $$d

install: ## what the tests need from Debian: nginx with ngx_lua, Redis, PostgreSQL, luacheck, shellcheck
	@sh .ci/install

install-bench:
	@sh .ci/install wrk

# Much of a test is waiting for a server, a lease or a browser, so two parts run beside each other, and one package more than there are processors within each. They share
# nothing but processors. A part's lines are printed when it ends, where make can do that.
PARTS = race e2e plain browser k6
AT_ONCE ?= 2
PACKAGES ?= $(shell expr 1 + $$(getconf _NPROCESSORS_ONLN))
test: install lint ## everything: lint, unit tests under -race, end-to-end tests on real parts and in a browser
	@echo "$(PARTS): $(AT_ONCE) at a time, each is shown when it ends"
	+@$(MAKE) --no-print-directory -j$(AT_ONCE) $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) $(PARTS)

lint: ## gofmt, vet, staticcheck, luacheck, shellcheck
	@bash .ci/lint

unit: race plain ## unit tests, under -race where it is our Go that runs

# The race detector does not watch SQLite, which is C made into Go, and the Lua of the gateway and of the tests' Redis: under it they take many times as long. No library
# belongs here that uses generic types of sync, as sync.Map is one: the linker would take its unwatched copy for everybody's, and see races where there are none.
UNWATCHED = modernc.org/sqlite/lib github.com/yuin/gopher-lua/...
RACE = -race $(foreach library,$(UNWATCHED),-gcflags=$(library)=-race=false)

# Of the simulation it plays a few seeds; plain plays them all.
race: ## the unit tests under -race, of all packages or of some (ONLY=./backend/...)
	$(GO) test $(RACE) -short -vet=off -p $(PACKAGES) -timeout 10m $(or $(ONLY),$$($(GO) list ./... | grep -v -e /test/e2e -e /nginx$$))

# nginx runs Lua, which no race detector sees; its Go, which starts and stops it, runs under -race in test/edges.
plain:
	$(GO) test -vet=off -p $(PACKAGES) -timeout 10m ./nginx ./test/sim
	cd observe/check && $(GO) test -timeout 5m ./...

e2e: ## the whole program over nginx, the Go gateway, Redis and PostgreSQL
	$(GO) test -count=1 -vet=off -parallel $(PACKAGES) -timeout 15m ./test/e2e
	cd test/chaos && $(GO) test -count=1 -vet=off -timeout 5m .

browser: ## the pages in a headless Chromium, through the Go gateway and through nginx
	cd test/browser && $(GO) test -count=1 -vet=off -timeout 10m .

pictures: install ## draws the pages, in both themes and at a phone's width, into docs/pictures
	mkdir -p docs/pictures && cd test/browser && $(GO) test -count=1 -v -timeout 10m -run 'TestPictures' . -pictures $(CURDIR)/docs/pictures

AXE = axe-core@4.10.3
weight: install ## what the page of a sale weighs, and when it is painted on a phone with a slow network, through the Go gateway and through nginx
	cd test/browser && $(GO) test -count=1 -v -timeout 10m -run 'TestThePageIsLight' .

accessible: install ## axe-core looks for barriers in the pages; needs npm
	dir=$$(mktemp -d) && cd $$dir && npm pack --silent $(AXE) >/dev/null && tar xzf axe-core-*.tgz && \
	cd $(CURDIR)/test/browser && $(GO) test -count=1 -v -timeout 10m -run 'TestAccessible' . -axe $$dir/package/axe.min.js; status=$$?; rm -rf $$dir; exit $$status

desk-scale: install ## the operators' desk with 10,000 sales and 1,000,000 dead letters: time to the first row, memory (SALES=n DEAD=n)
	cd test/browser && $(GO) test -count=1 -v -timeout 20m -run 'TestDeskAtScale' . -scale-sales $(or $(SALES),10000) -scale-dead $(or $(DEAD),1000000)

k6: ## the load tests' own tests: an honest shop passes, each kind of cheat fails; builds k6 once
	cd loadtest && $(GO) test -vet=off -timeout 10m ./...

rush: install ## 200,000 requests of 20,000 buyers for 1,000 units through both edges, with kills (RUSH_REQUESTS=n)
	SLUICE_RUSH_REQUESTS=$(RUSH_REQUESTS) $(GO) test -count=1 -v -timeout 30m -run 'TestRush' ./test/e2e

compose: install ## docker-compose.yml and the Dockerfile on a Docker engine of its own: built, started, sold from, killed, reloaded, watched, taken down; as root on Linux (DATA=folder keeps the build's cache for the next time)
	@sh .ci/install docker.io busybox prometheus
	cd test/containers && $(GO) test -count=1 -v -timeout 30m . $(if $(DATA),-data $(abspath $(DATA)))

edge-bound: install install-bench ## one hot key, 2 and 4 workers, rates and bursts for 10 s each, a reload half-way: admitted beside the bound (10 minutes)
	SLUICE_BOUND_SECONDS=10 $(GO) test -count=1 -v -timeout 30m -run 'TheBoundSideBySide' ./nginx

edge-memory: install ## how many buckets a zone of 100 MB holds, and the bytes of one in both edges
	SLUICE_ZONE=100m $(GO) test -count=1 -v -timeout 10m -run 'WhatAZoneHolds|ABucketTakes' ./nginx ./gateway/limit

edge-corpus: install ## a million generated decisions through both edges and the model: no difference
	SLUICE_CORPUS=1000000 $(GO) test -count=1 -v -timeout 20m -run 'Corpus' ./gateway ./nginx

sim: ## 10,000 seeds of whole sales with faults at every call, on both queues (SEEDS=n FROM=n QUEUE=list|stream); SEED=n plays one again and prints every step
	$(GO) test -count=1 -v -timeout 90m -run 'TestSimulation' ./test/sim $(if $(QUEUE),-queue $(QUEUE)) $(if $(SEED),-seed $(SEED),-seeds $(or $(SEEDS),10000) -from $(or $(FROM),1))

chaos: install ## 220 kills, freezes, cut links and full disks on real parts in five minutes, then a count of all orders; draws docs/chaos.svg (SEED=n FAULTS=n SPAN=5m QUEUE=list|stream)
	cd test/chaos && $(GO) test -count=1 -v -timeout 30m -run 'TestChaos' . -faults $(or $(FAULTS),220) -span $(or $(SPAN),5m) -idle 10s $(if $(SEED),-seed $(SEED)) $(if $(QUEUE),-queue $(QUEUE),-svg $(CURDIR)/docs/chaos.svg)

several: install ## twelve machines in network namespaces, each cut off in turn, Redis failed over, the database restored, all restarted, while 20,000 buyers come (root; six minutes)
	@[ "$$(id -u)" -eq 0 ] || { echo "several: only root can make machines out of network namespaces" >&2; exit 1; }
	@sh .ci/install iproute2 haproxy
	cd test/chaos && $(GO) test -count=1 -v -timeout 20m -run 'TestSeveralMachines' . -several

failovers: install ## the machine with the master of Redis is cut off again and again (FAILOVERS=n): for how long nothing is sold, and who did what when (root; two minutes)
	@[ "$$(id -u)" -eq 0 ] || { echo "failovers: only root can make machines out of network namespaces" >&2; exit 1; }
	@sh .ci/install iproute2 haproxy
	cd test/chaos && $(GO) test -count=1 -v -timeout 20m -run 'TestFailovers' . -failovers $(or $(FAILOVERS),6)

events-chaos: install ## 100,000 orders told to points, push and webhooks while instances are killed twenty times, then a count of all (ORDERS=n KILLS=n; SLOW=n: one more group takes n a second)
	SLUICE_EVENTS_ORDERS=$(or $(ORDERS),100000) SLUICE_EVENTS_KILLS=$(or $(KILLS),20) SLUICE_EVENTS_SLOW=$(or $(SLOW),0) $(GO) test -count=1 -v -timeout 40m -run 'TestGroupsMissNothing' ./test/e2e

mutants: ## break the scripts, the worker and the tables in each known way: the simulation or a conformance test must notice
	$(GO) test -count=1 -v -timeout 60m -run 'TestMutants' ./test/sim -mutants

bench: install-bench ## speed of the whole path, as ratios against named baselines in one interleaved run
	cd bench && $(GO) run . speed --only purchase,edge,orders,queue

bench-test: install-bench ## the benchmarks' own tests: one short round of each keeps them from rotting (about two minutes)
	cd bench && $(GO) test -count=1 -vet=off -timeout 15m ./...

bench-edge: install-bench ## speed of both edges: limits and refusals in nginx, the Go gateway next to Caddy and others
	cd bench && $(GO) run -pgo=../cmd/sluice/release.pgo . speed --only limits,gateway

bench-pages: install-bench ## how many openings of a sale's page an nginx edge answers, and how few of them the backend sees
	cd bench && $(GO) run . speed --only pages

bench-queue: install ## the queue alone next to raw streams, rmq and asynq, with each appendfsync; an idle and a deep queue (ten minutes)
	cd bench && $(GO) run . queue

bench-events: install ## changes of orders from committed rows to three groups, next to Watermill's Redis streams (two minutes)
	cd bench && $(GO) run . events

bench-webhooks: install ## webhooks that wait in SQL, posted by one instance and by two, next to a plain http.Client (five minutes)
	cd bench && $(GO) run . webhooks

open-pages: install ## 20,000 buyers with a page open, and 2,000 more that are told to ask instead: what one costs, and that nothing is left (BUYERS=n; five minutes)
	cd bench && $(GO) run . open --buyers $(or $(BUYERS),20000)

bench-replay: ## sluice policy replay on a million lines of our own log and of nginx's combined one: time and memory (LINES=n)
	cd bench && $(GO) run . replay --lines $(or $(LINES),1000000)

memory: install-bench ## Redis bytes per accepted buyer and per queued order, at a million of each
	cd bench && $(GO) run . memory

fuzz: ## every fuzz target for ten seconds each
	@for p in $$($(GO) list ./... ); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep ^Fuzz); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime 10s $$p || exit 1; done; done

smoke spike soak: ## k6 against a running sluice up: see loadtest/README.md
	loadtest/run $@

.PHONY: help up build commands profile install install-bench test lint unit race plain e2e browser pictures weight accessible desk-scale k6 rush compose edge-bound edge-memory edge-corpus sim chaos several failovers events-chaos mutants bench bench-test bench-edge bench-pages bench-queue bench-events bench-webhooks open-pages bench-replay memory fuzz smoke spike soak
