# Benchmarks and load tests. `make help-bench` lists them; docs/benchmarks.md has the results and loadtest/README.md the load tests.
# Included by the Makefile, so paths are relative to the root of the repository.

help-bench: # lists the benchmarks
	@$(list) bench/bench.mk

install-bench:
	@sh .ci/install wrk

bench-test: install-bench ## test the benchmarks themselves: one short round of each (two minutes)
	cd bench && $(GO) test -count=1 -vet=off -timeout 15m ./...

bench-edge: install-bench ## both edges: limits and refusals in nginx, the Go gateway beside Caddy and other proxies
	cd bench && $(GO) run -pgo=../cmd/sluice/release.pgo . speed --only limits,gateway

bench-up: ## start time, processor time and memory of an idle sluice up (AGAINST=tree; four minutes for each)
	cd bench && $(GO) run . up $(if $(AGAINST),--against $(abspath $(AGAINST)))

bench-pages: install-bench ## views of a sale page through nginx, and how many of them reach the backend
	cd bench && $(GO) run . speed --only pages

bench-queue: install ## the queue beside raw streams, rmq and asynq, with each appendfsync; an idle and a deep queue (ten minutes)
	cd bench && $(GO) run . queue

bench-events: install ## order events from committed rows to three groups, beside Watermill (two minutes)
	cd bench && $(GO) run . events

bench-held: install ## orders, events and webhooks while another transaction is open in PostgreSQL (three minutes)
	cd bench && $(GO) run . held

cost: install install-bench ## processor time of each part per accepted order, both edges, 1, 64 and 1000 connections (AGAINST=tree; eight minutes)
	cd bench && $(GO) run . cost --edge nginx,gateway --connections 1,64,1000 $(if $(AGAINST),--against $(abspath $(AGAINST)))

million: install install-bench ## one sale of a million units to a million buyers: processor time per tenth, memory, SQL (UNITS=n; five minutes)
	cd bench && $(GO) run . million --units $(or $(UNITS),1000000) --out $(abspath docs/million.svg)

machines: ## the table of docs/scale.md: what 1 to 100 machines accept, extrapolated from measured processor times
	@cd bench && $(GO) run . machines

bench-webhooks: install ## webhooks from SQL with one instance and with two, beside a plain http.Client (five minutes)
	cd bench && $(GO) run . webhooks

bench-year: install ## a year of sales in PostgreSQL: what purchases, status queries, the console and a rebuild take (ROWS=n)
	cd bench && $(GO) run . year --rows $(or $(ROWS),1000000)

scale: install ## one sale over 1, 2, 4 and 8 Redis masters, each limited to 4% of a core (root; three minutes)
	cd bench && $(GO) run . scale --rounds 5 --seconds 6

bench-replay: ## sluice policy replay on a million log lines: time and memory (LINES=n)
	cd bench && $(GO) run . replay --lines $(or $(LINES),1000000)

open-pages: install ## 20,000 open pages and 2,000 more that must poll: cost of a page, and cleanup (BUYERS=n; five minutes)
	cd bench && $(GO) run . open --buyers $(or $(BUYERS),20000)

memory: install-bench ## Redis memory per accepted buyer and per queued order, at a million of each, without and with idempotency keys
	cd bench && $(GO) run . memory && $(GO) run . memory --idempotency-keys

edge-memory: install ## buckets in a zone of 100 MB, and bytes per bucket at both edges
	SLUICE_ZONE=100m $(GO) test -count=1 -v -timeout 10m -run 'TestBucket' ./nginx ./gateway/limit

admin-scale: install ## the admin console with 10,000 sales and 1,000,000 dead letters: first row, memory (SALES=n DEAD=n)
	cd test/browser && $(GO) test -count=1 -v -timeout 20m -run 'AtScale' . -scale-sales $(or $(SALES),10000) -scale-dead $(or $(DEAD),1000000)

weight: install ## size of the sale page, and its first paint on a slow phone network, through both edges
	cd test/browser && $(GO) test -count=1 -v -timeout 10m -run 'TestPageWeight' .

smoke spike soak: ## load tests with k6 against a running sluice up
	loadtest/run $@

.PHONY: help-bench install-bench bench-test bench-edge bench-up bench-pages bench-queue bench-events bench-held cost million machines bench-webhooks bench-year scale bench-replay open-pages memory edge-memory admin-scale weight smoke spike soak
