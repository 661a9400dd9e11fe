# Weir's make targets. CI calls the same ones. Everything needs only Go, except
# lint (installs its linter) and compat (installs foreign clients and Kafka's tools).
GO       ?= go
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X main.version=$(VERSION)
FUZZTIME ?= 60000x
COUNT    ?= 20
TRIALS   ?= 20
SEEDS    ?= 1000
FIRST    ?= 1
HOURS    ?= 8
DURATION ?= 60s
MEMBERS  ?= 500
IDLE     ?= 1000
CHAOS    ?= 24
SHORT    := kill,kill-back,term,pause,cut,cut-peers,cut-out,reply-loss,cut-tail,wipe-partitions,elect,churn,reassign,wipe
KINDS    ?=
LINT     := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
RETEST   := gotest.tools/gotestsum@v1.13.0
GOBIN    := $(CURDIR)/bin

# $(call suite,flags,packages) runs tests. In CI a test that failed is run once more, by itself, and listed: the machine
# is shared, and each commit runs some thousand tests that talk over real sockets. A data race is never run again.
ifdef CI
suite = $(GOBIN)/gotestsum --format pkgname --rerun-fails=1 --rerun-fails-max-failures=4 --rerun-fails-abort-on-data-race --packages="$(2)" -- $(1)
else
suite = $(GO) test $(1) $(2)
endif
export CGO_ENABLED := 0

.PHONY: build demo test race explore lint retest golden fuzz sim mutants bench cluster failover failover-many groups hostile chaos chaos-short chaos-figures chaos-mutants soak compat ci clean

build: ## build bin/weir
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/weir ./cmd/weir

demo: build ## three real nodes, produce, consume, kill a leader, lose nothing
	./bin/weir demo --once

test: ## all tests that need only Go, with invariant checks on
	$(call suite,-timeout 30m -tags invariants,./...)

race: ## the same under the race detector (needs a C compiler), but for long tests that have one goroutine
	CGO_ENABLED=1 $(call suite,-short -timeout 30m -race -tags invariants,$$($(GO) list ./... | grep -v /integration/ | xargs))

explore: ## the packages with randomised tests COUNT times, with new seeds (make test takes the same ones each time)
	WEIR_SEED=random $(GO) test -tags invariants -count=$(COUNT) -timeout 0 ./wire ./storage ./broker ./controller

lint: ## vet, format and the linters of .golangci.yml
	@test -x $(GOBIN)/golangci-lint || GOBIN=$(GOBIN) $(GO) install $(LINT)
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "gofmt would change these files"; exit 1; }
	$(GO) vet ./...
	$(GOBIN)/golangci-lint run ./...

retest:
	@test -x $(GOBIN)/gotestsum || GOBIN=$(GOBIN) $(GO) install $(RETEST)

golden: ## rewrite the scripts under testdata after reading the difference they show
	$(GO) test ./fsm ./controller/elect ./broker/isr ./broker/feed ./broker/group ./storage ./wire -rewrite

fuzz: ## every fuzz target for FUZZTIME each, in inputs (60000x) or time (30s)
	scripts/fuzz $(FUZZTIME)

bench: build ## micro benchmarks, then throughput and failover of real processes
	$(GO) test -run '^$$' -bench . -benchmem ./wire/... ./storage/... ./fsm/... ./broker/... ./controller/wal
	scripts/bench

cluster: build ## the main job over three real processes, through leader kills
	WEIR_BIN=$(CURDIR)/bin/weir $(call suite,-count=1 -v -timeout 20m,./integration/cluster)

failover: build ## longest silence of a producer over SIGKILL and SIGTERM of a leader, TRIALS of each kind
	WEIR_BIN=$(CURDIR)/bin/weir WEIR_TRIALS=$(TRIALS) $(GO) test -count=1 -v -timeout 60m -run Failover ./integration/cluster

failover-many: build ## the same for a thousand partitions at a time, nodes killed and frozen, the controller too; fails over the limits
	WEIR_BIN=$(CURDIR)/bin/weir WEIR_TRIALS=$(TRIALS) $(GO) test -count=1 -v -timeout 120m -run ManyPartitions ./integration/cluster

groups: build ## groups at scale: commits for DURATION, coordinator failovers, MEMBERS in one group, IDLE idle groups; prints tables
	WEIR_BIN=$(CURDIR)/bin/weir WEIR_TRIALS=$(TRIALS) WEIR_DURATION=$(DURATION) WEIR_MEMBERS=$(MEMBERS) WEIR_GROUPS=$(IDLE) WEIR_SETTLE=6s \
		$(GO) test -count=1 -v -timeout 0 -run 'TestGroup|TestIdleGroups' ./integration/cluster

hostile: build ## everything a hostile client may send, beside a well-behaved one; prints a table
	WEIR_BIN=$(CURDIR)/bin/weir WEIR_HOSTILE=full $(GO) test -count=1 -v -timeout 60m ./integration/hostile

sim: ## SEEDS simulated clusters under faults, from FIRST on; prints how many a CPU-second; SHRINK=n runs for a smaller plan of one that fails, KEEP=file for it
	$(GO) test -count=1 -v -timeout 0 ./integration/sim -seeds $(SEEDS) -first-seed $(FIRST) $(if $(SHRINK),-shrink $(SHRINK)) $(if $(KEEP),-keep $(abspath $(KEEP)))

mutants: ## every deliberate fault must be found by the simulator (long)
	WEIR_MUTANTS=all $(GO) test -count=1 -v -timeout 0 ./integration/mutants -rewrite

chaos: build ## a quarter of an hour of all faults under a workload, then the verdict
	WEIR_BIN=$(CURDIR)/bin/weir scripts/chaos -length 13m

chaos-short: build ## two minutes of faults that need no privileges, always the same schedule; nothing in it depends on speed
	WEIR_BIN=$(CURDIR)/bin/weir scripts/chaos -length 75s -net loopback -seed $(CHAOS) -gap 0 -patience 6m -faults $(SHORT)

chaos-figures: build ## what each kind of fault costs: TRIALS of each, alone; goes on where it was ended; KINDS=a,b for some
	WEIR_BIN=$(CURDIR)/bin/weir scripts/chaos -each $(TRIALS) -out chaos-figures -seed 1 -rate 200 $(if $(KINDS),-faults $(KINDS))

chaos-mutants: build ## brokers with a deliberate fault each, which runs with real processes must find (long, as root)
	WEIR_CHAOS_MUTANTS=all $(GO) test -count=1 -v -timeout 0 -run Chaos ./integration/mutants

soak: build ## runs of a quarter of an hour, each with the next seed, for HOURS
	WEIR_BIN=$(CURDIR)/bin/weir scripts/chaos -length 13m -hours $(HOURS)

compat: build ## foreign clients and Kafka's own tools against real nodes (installs them)
	scripts/compat

ci: retest lint test race ## what .ci/run calls: the short form of each suite (test has that of cluster, clients, hostile and sim)
	scripts/fuzz 10000x
	$(MAKE) demo chaos-short

clean:
	rm -rf bin weir-data weir-demo
