# Long tests, which `make test` runs in a short form or not at all. `make help-proof` lists them; docs/proof.md explains them.
# Included by the Makefile, so paths are relative to the root of the repository.

RUSH_REQUESTS ?= 200000

help-proof: # lists the long tests
	@$(list) test/proof.mk

sim: ## 10,000 simulated sales with each queue driver, with faults at every call (SEEDS=n FROM=n QUEUE=list|stream; SEED=n prints every step of one)
	$(GO) test -count=1 -v -timeout 90m -run 'TestSimulation' ./test/sim $(if $(QUEUE),-queue $(QUEUE)) $(if $(SEED),-seed $(SEED),-seeds $(or $(SEEDS),10000) -from $(or $(FROM),1))

spread: ## the refill policy of a sale over 2 to 1,000 segments: stranded units, moves and waits, as the table of docs/scale.md
	@$(GO) test -count=1 -v -run 'TestRefillTable' ./test/spread -table | grep '^|'

spread-sim: ## 10,000 simulated sales whose units move between segments, with faults at every call (SEEDS=n FROM=n; SEED=n prints every step of one)
	$(GO) test -count=1 -v -timeout 60m -run 'TestTransfersOverModel' ./test/spread $(if $(SEED),-seed $(SEED),-seeds $(or $(SEEDS),10000) -from $(or $(FROM),1))
	$(if $(SEED),,$(GO) test -count=1 -v -timeout 60m -run 'TestTransfersOverStores' ./test/spread -seeds $$(( $(or $(SEEDS),10000) / 10 )) -from $(or $(FROM),1))

mutants: ## break the scripts, the worker and the tables in known ways: a test must fail for each
	$(GO) test -count=1 -v -timeout 60m -run 'TestMutants' ./test/sim -mutants

chaos: install ## 220 faults on real servers in five minutes, then an audit; draws docs/chaos.svg (SEED=n FAULTS=n SPAN=5m QUEUE=list|stream REDIS=single|cluster)
	cd test/chaos && $(GO) test -count=1 -v -timeout 30m -run 'TestChaos' . -faults $(or $(FAULTS),220) -span $(or $(SPAN),5m) -idle 10s $(if $(SEED),-seed $(SEED)) $(if $(REDIS),-redis $(REDIS)) $(if $(QUEUE),-queue $(QUEUE)) $(if $(QUEUE)$(REDIS),,-svg $(CURDIR)/docs/chaos.svg)

cluster: install ## a Redis Cluster of three masters and three replicas during purchases: 40 faults, 20 masters cut off, 24 moves of a shard (FAULTS=n SEED=n CUTS=n MOVES=n)
	$(GO) test -count=1 -v -timeout 60m -run 'TestClusterFaults' ./test/e2e -cluster-faults $(or $(FAULTS),40) $(if $(SEED),-cluster-seed $(SEED))
	$(GO) test -count=1 -v -timeout 60m -parallel 1 -run 'TestClusterCutsAMaster' ./test/e2e -cluster-cuts $(or $(CUTS),20)
	$(GO) test -count=1 -v -timeout 60m -parallel 1 -run 'TestShardMove' ./test/e2e -shard-moves $(or $(MOVES),24)

several: install ## twelve machines in network namespaces: disconnects, a failover, a restore, restarts, 20,000 buyers (root; six minutes; REDIS=cluster: fifteen machines, two minutes, each master of a Redis Cluster is cut off)
	@[ "$$(id -u)" -eq 0 ] || { echo "several: network namespaces need root: run it with sudo" >&2; exit 1; }
	@sh .ci/install iproute2 haproxy
	cd test/chaos && $(GO) test -count=1 -v -timeout 20m -run 'TestSeveralMachines' . -several $(if $(REDIS),-redis $(REDIS))

failovers: install ## disconnect the Redis master repeatedly and print a timeline of each failover (FAILOVERS=n; root; two minutes)
	@[ "$$(id -u)" -eq 0 ] || { echo "failovers: network namespaces need root: run it with sudo" >&2; exit 1; }
	@sh .ci/install iproute2 haproxy
	cd test/chaos && $(GO) test -count=1 -v -timeout 20m -run 'TestFailovers' . -failovers $(or $(FAILOVERS),6)

events-chaos: install ## 100,000 orders to every group of consumers with twenty kills (ORDERS=n KILLS=n; SLOW=n adds a group with n events/s)
	SLUICE_EVENTS_ORDERS=$(or $(ORDERS),100000) SLUICE_EVENTS_KILLS=$(or $(KILLS),20) SLUICE_EVENTS_SLOW=$(or $(SLOW),0) $(GO) test -count=1 -v -timeout 40m -run 'TestGroupsMissNoEvent' ./test/e2e

rush: install ## 200,000 requests of 20,000 buyers for 1,000 units through both edges, with kills (RUSH_REQUESTS=n)
	SLUICE_RUSH_REQUESTS=$(RUSH_REQUESTS) $(GO) test -count=1 -v -timeout 30m -run 'TestRush' ./test/e2e

compose: install ## docker-compose.yml on a separate Docker engine: build, sell, kill, reload, stop (root on Linux; DATA=directory keeps the build cache)
	@sh .ci/install docker.io busybox prometheus
	cd test/containers && $(GO) test -count=1 -v -timeout 30m . $(if $(DATA),-data $(abspath $(DATA)))

edge-bound: install install-bench ## one hot key, 2 and 4 workers, a reload half-way: admitted requests beside the bound (ten minutes)
	SLUICE_BOUND_SECONDS=10 $(GO) test -count=1 -v -timeout 30m -run 'TestBoundSideBySide' ./nginx

fleet: install ## a limit of the fleet at 1.6 times the rate, over four edges and over four limiters alone: use and round trips (half an hour; FOR=duration of a row)
	@$(GO) test -count=1 -v -timeout 30m -run 'TestMeasureLimiters' ./internal/fleetlimit -measure $(or $(FOR),30s) | grep -E '^(\||--- FAIL|FAIL|ok)|_test.go'
	@$(GO) test -count=1 -v -timeout 60m -run 'TestFleetUse' ./test/edges -fleet-use $(or $(FOR),30s) | grep -E '^(\||--- FAIL|FAIL|ok)|_test.go'

edge-corpus: install ## a million generated decisions by both edges and the model, without a difference
	SLUICE_CORPUS=1000000 $(GO) test -count=1 -v -timeout 20m -run 'Corpus' ./gateway ./nginx

packages: ## install the Debian packages in a fresh Debian with systemd, sell, upgrade and roll back during the sale (root on Linux; DATA=directory keeps Debian)
	@[ "$$(id -u)" -eq 0 ] || { echo "packages: systemd-nspawn needs root: run it with sudo" >&2; exit 1; }
	@sh .ci/install debootstrap systemd-container
	dir=$(if $(DATA),$(abspath $(DATA)),$$(mktemp -d)); cd packaging && $(GO) test -count=1 -v -timeout 20m -run 'TestDebian' . -debian $$dir; \
	status=$$?; $(if $(DATA),,rm -rf $$dir;) exit $$status

charts: ## lint the packed Helm chart with helm, and validate its manifests with kubeconform (compiles helm: two minutes)
	dir=$$(mktemp -d) && (cd packaging && $(GO) run . --only chart --version 0.1.0 --out $$dir/out) && \
	cd packaging/chartcheck && SLUICE_CHART=$$dir/out/sluice-0.1.0.tgz $(GO) test -count=1 -v .; status=$$?; rm -rf $$dir; exit $$status

CYCLONEDX = @cyclonedx/cyclonedx-library@10.3.0 ajv@8 ajv-formats@3 ajv-formats-draft2019@1
release-check: ## check a release: checksums, packages, arm64 in an emulator, the Lua packages in nginx, SBOMs against their schema (OUT=directory; needs npm)
	@sh .ci/install qemu-user-static
	out=$(abspath $(or $(OUT),dist)) && { [ -d $$out ] || { echo "release-check: no release in $$out: run make release first" >&2; exit 2; }; } && \
	(cd packaging && $(GO) test -count=1 -v -run 'TestRelease|TestInstalledLimiterKeepsBound' . -release $$out) && \
	dir=$$(mktemp -d) && trap 'rm -rf $$dir' EXIT && npm install --silent --no-audit --no-fund --prefix $$dir $(CYCLONEDX) && \
	cp packaging/sbom.mjs $$dir && node $$dir/sbom.mjs $$out/*.cdx.json

# Each clone has a build cache of its own: a shared one would hide what depends on the directory. The second clone also has another
# umask, time zone and locale.
reproducible: ## build the release of this commit in two clones, without a shared build cache, and compare (VERSION=1.2.3 ARCH=amd64,arm64 OUT=directory)
	dir=$$(mktemp -d) && trap 'rm -rf $$dir' EXIT && build() { git clone --quiet . $$dir/$$1 && $(MAKE) --no-print-directory -C $$dir/$$1 release \
	    GO="env GOCACHE=$$dir/cache-$$2 $(GO)" VERSION=$(or $(VERSION),0.1.0) OUT=$$dir/out-$$2; } && \
	(umask 022 && export TZ=UTC LC_ALL=C && build one one) && \
	(umask 077 && export TZ=Asia/Kathmandu LC_ALL=tr_TR.UTF-8 && build two/deeper two) && \
	diff -r $$dir/out-one $$dir/out-two && cat $$dir/out-one/SHA256SUMS $(if $(OUT),&& cp -r $$dir/out-one/. "$(abspath $(OUT))")

AXE = axe-core@4.10.3
accessible: install ## check the pages for accessibility with axe-core (needs npm)
	dir=$$(mktemp -d) && cd $$dir && npm pack --silent $(AXE) >/dev/null && tar xzf axe-core-*.tgz && \
	cd $(CURDIR)/test/browser && $(GO) test -count=1 -v -timeout 10m -run 'TestAccessible' . -axe $$dir/package/axe.min.js; status=$$?; rm -rf $$dir; exit $$status

LIGHTHOUSE = lighthouse@12.8.2
lighthouse: install ## score the buyer's pages with Lighthouse in Chromium: at least 95 in each category (needs npm; five minutes)
	dir=$$(mktemp -d) && npm install --silent --no-audit --no-fund --prefix $$dir $(LIGHTHOUSE) && \
	cd $(CURDIR)/test/browser && $(GO) test -count=1 -v -timeout 15m -run 'TestLighthouse' . -lighthouse $$dir/node_modules/.bin/lighthouse; status=$$?; rm -rf $$dir; exit $$status

.PHONY: help-proof sim spread spread-sim mutants chaos cluster several failovers events-chaos rush compose edge-bound fleet edge-corpus packages charts release-check reproducible accessible lighthouse
