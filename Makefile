# Two commands do everything on a fresh Debian 12 machine, set-up included:
#   make conformance   the main job: the suite over every provider this machine has
#   make test          everything that must hold before a change lands
# `make help` lists the rest.

.DEFAULT_GOAL := help
.PHONY: help setup conformance served adversary encrypted two-hosts mutants random soak fuzz assembly loom test fmt lint doc unit bindings miri package deny bench libfabric softroce \
	softroce-shell

CARGO ?= cargo
# All there is to build, but the feature `rdma-sys`.
ALL = $(shell . scripts/env && everything)
MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

help: ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

setup: ## Install what is missing: a linker, the Rust toolchain, libibverbs, librdmacm
	@scripts/setup

conformance: setup ## Run the conformance suite over every provider: verbs in a guest where there is no RDMA device
	@CARGO="$(CARGO)" scripts/conformance $(ARGS)

served: setup ## The suite over TCP, each peer's end in another process; ARGS as in fabric-conformance --help
	@CARGO="$(CARGO)" scripts/served $(ARGS)

two-hosts: setup ## The suite between two hosts, in guests, over links that lose packets and are cut; ARGS as in --help
	@CARGO="$(CARGO)" scripts/two-hosts $(ARGS)

test: setup ## Format, lints, docs, all tests, assembly, loom, Miri, packages, tests on a device, conformance, fuzzers
	@CARGO="$(CARGO)" scripts/test

adversary: ## The conformance suite over TCP, or PROVIDER=shm, at its worst: cuts, delays, odd orders; SEED=N
	@. scripts/env && CARGO="$(CARGO)" scripts/conformance --provider $(or $(PROVIDER),tcp) --adversary $(or $(SEED),1) --jobs 4

encrypted: ## The conformance suite over tcp and shm, encrypted, and connections over verbs, authenticated; ARGS as in fabric-conformance --help
	@CARGO="$(CARGO)" scripts/encrypted $(ARGS)

mutants: ## Plant bugs, one at a time, and show which conformance cases find each: some minutes
	@. scripts/env && $(CARGO) run --quiet -p mutants

random: ## Random programs beside a model of the contract, of connected and of datagram endpoints, over TCP, or PROVIDER=shm; PROGRAMS=N, ARGS as in `fabric-conformance fuzz --help`
	@. scripts/env && CARGO="$(CARGO)" scripts/conformance fuzz --provider $(or $(PROVIDER),tcp) --programs $(or $(PROGRAMS),300) $(ARGS)
	@. scripts/env && CARGO="$(CARGO)" scripts/conformance fuzz --rdm --provider $(or $(PROVIDER),tcp) --programs $(or $(PROGRAMS),300) \
		$(filter-out --layer,$(ARGS))

soak: setup ## All that is long, one after the other: a night; PARTS="..." as in scripts/soak --help
	@CARGO="$(CARGO)" scripts/soak $(PARTS)

fuzz: ## The fuzzers of connections, wire formats, handshakes, encryption and leases, 60 s each or TIME=N, and what they reach
	@CARGO="$(CARGO)" scripts/fuzz $(or $(TIME),60)

assembly: ## Memory accesses, optimised, on each kind of processor: x86-64, its levels v3 and v4, aarch64 (emulated)
	@CARGO="$(CARGO)" scripts/assembly

loom: ## The lock-free parts under loom: every interleaving
	@CARGO="$(CARGO)" scripts/loom

fmt: ## Check the format
	$(CARGO) fmt --all --check

lint: ## clippy, warnings are errors, with and without every feature; words that may only get fewer
	$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings
	$(CARGO) clippy --quiet $(ALL) --all-targets --test suite -- -D warnings
	$(CARGO) clippy --quiet -p anyfabric --no-default-features --lib -- -D warnings
	$(CARGO) clippy --quiet -p anyfabric --no-default-features --features tcp --lib -- -D warnings
	$(CARGO) clippy --quiet -p anyfabric-async --no-default-features --lib --test null -- -D warnings
	$(CARGO) clippy --quiet -p anyfabric-async --no-default-features --features rdm --lib -- -D warnings
	@scripts/words

doc: ## Build the documentation, warnings are errors, without verbs and with everything
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet -p anyfabric -p anyfabric-async --no-default-features \
		--features anyfabric/tcp,anyfabric-async/tokio --no-deps
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --quiet $(ALL) --no-deps

unit: ## All tests, doctests among them
	$(CARGO) test $(ALL)

bindings: ## Compare the C types and functions of verbs with those of the crate rdma-sys, which wants libclang 14
	@CARGO="$(CARGO)" scripts/rdma-sys

# What `make test` does beside its parts: it builds the programs of the last ones, and then each part of Miri keeps one
# processor busy for minutes.
.PHONY: beside programs packages
beside: programs
	@$(MAKE) --no-print-directory -j4 --output-sync=target miri packages

# A fuzzer that cannot be built says so when it is to run.
programs:
	@. scripts/env && $(CARGO) build --quiet --profile checked -p anyfabric-conformance --bin fabric-conformance
	@FABRIC_NOT_RUN= CARGO="$(CARGO)" scripts/fuzz --build >/dev/null

# What only builds.
packages:
	@$(MAKE) --no-print-directory -j1 assembly loom package deny

package: ## Check that every crate packages, and builds with the stated minimum Rust version
	@scripts/package $(MSRV)

deny: ## Check licences, advisories and sources of the dependencies
	@scripts/deny

miri: miri-core miri-handles miri-async ## fabric-core and fabric-util, the handles and the asynchronous layer under Miri
.PHONY: miri-toolchain miri-core miri-handles miri-async
miri-core miri-handles miri-async: miri-toolchain
miri-toolchain miri-core miri-handles miri-async:
	@scripts/miri $(@:miri-%=%)

bench: setup ## Performance beside plain sockets, libfabric and UCX, with a report: ten minutes; ARGS as in scripts/bench --help
	@CARGO="$(CARGO)" scripts/bench $(ARGS)

libfabric: setup ## Programs that speak libfabric, Open MPI among them, over the provider for it; FABTESTS=, OSU=folder with their programs
	@CARGO="$(CARGO)" scripts/libfabric $(ARGS)

softroce: ## Run CMD="..." in a guest with a software RDMA device; OPTIONS="..." as in scripts/softroce --help
	@scripts/softroce $(OPTIONS) -- bash -c "$${CMD:?say what to run: make softroce CMD=...}"

softroce-shell: ## A prompt in such a guest
	@scripts/softroce $(OPTIONS)
