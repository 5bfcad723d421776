# Every target is one line; what takes more is a script. CI runs only these.
.DEFAULT_GOAL := help
# As `su` leaves it, iptables and ip are not found.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin
.PHONY: help setup run test check sim power conformance soak mutants fuzz bench bench-check
.PHONY: features size
.PHONY: cross-tools armv7 aarch64 x86_64-musl armv7-test aarch64-test
.PHONY: qemu qemu-small qemu-jobs release release-key size-gate flashed plots

help: ## lists the targets
	@sed -n 's/^\([a-z][a-z-]*\):.* ## /\1	/p' $(MAKEFILE_LIST) | expand --tabs=14

setup: ## installs the Debian packages that building, running and testing need
	@scripts/setup --test

run: ## runs the system with demo pods until Ctrl-C (MODE=standalone: edged alone; DEVICES=1)
	@scripts/run

test: setup ## runs the whole test suite, the same as in CI
	@scripts/test

check: setup ## format, lints, style and dependency rules
	@scripts/check

sim: ## all simulators over 20,000 seeds, both cores joined over 2,000; SEED=n replays one
	@scripts/sim

power: ## cuts the power of the store 10,000 times (SEED=n TRACE=1 replays one seed)
	@scripts/cargo test --locked --features devices --profile sim --test power -- 10000

conformance: setup ## runs all of upstream's node tests into tests/conformance.md (RUNTIME=builtin)
	@scripts/cargo test --locked --features controller,probe-https,runtime --test conformance

soak: setup ## kills two agents and a controller at random for ten minutes (SOAK_S=seconds SEED=n)
	@SOAK_S=$${SOAK_S:-600} scripts/cargo test --features controller --test whole -- at_random

mutants: ## breaks the cores on purpose: a test must notice (RULES=1: only the named rules)
	@scripts/mutants.sh $(if $(RULES),--rules)

fuzz: ## runs each fuzz target for a minute (needs cargo-fuzz)
	@scripts/fuzz

bench: setup flashed ## measures time, memory and CPU beside their references into target/bench.json
	@scripts/cargo bench --locked --features full,controller,runtime --bench bench

bench-check: setup flashed ## the same, and fails where a figure misses its limit
	@scripts/cargo bench --locked --features full,controller,runtime --bench bench -- --check

flashed: ## builds what `make bench` measures, where the tools for it are there
	@scripts/flashed

features: setup ## checks each named feature set, each feature alone and each one missing
	@scripts/features

cross-tools: ## installs what scripts/cross needs: Debian's Rust with its sources, zig from PyPI
	@scripts/cross armv7 tools

armv7: ## builds the static program for armv7 (SET=minimal, gateway, full, standalone)
	@scripts/cross armv7 build --no-default-features --features $(or $(SET),gateway)

aarch64: ## builds the static program for aarch64
	@scripts/cross aarch64 build --no-default-features --features $(or $(SET),gateway)

x86_64-musl: ## builds the static program for x86_64
	@scripts/cross x86_64 build --no-default-features --features $(or $(SET),gateway)

armv7-test: ## runs units, wire and stories for armv7 under emulation
	@scripts/cross armv7 test

aarch64-test: ## runs units, wire and stories for aarch64 under emulation
	@scripts/cross aarch64 test

qemu: setup ## boots a gateway with edged and the demo's pods in QEMU (TARGET=armv7 …)
	@scripts/qemu $(or $(TARGET),armv7)

qemu-small: setup ## boots edged alone in QEMU: check, and the start on manifests (TARGET=…)
	@scripts/qemu --small $(or $(TARGET),armv7)

qemu-jobs: setup ## does jobs of a real API server on a gateway in QEMU (KUBE=folder CLOUD=…)
	@scripts/qemu --jobs $(or $(TARGET),armv7)

release: ## makes tarballs of all targets in target/dist (SET=standalone, KEY=file signs them)
	@scripts/release $(if $(SET),--set $(SET)) $(if $(KEY),--key $(KEY))

release-key: ## makes the key pair that releases are signed by: KEY=file and file.pub
	@scripts/release --new-key $(KEY)

size: ## measures what is flashed into docs/features.md (an hour; SETS=1: named sets only)
	@scripts/size $(if $(SETS),--sets)

plots: ## draws docs/peers.svg out of docs/peers.csv
	@scripts/plots

size-gate: ## builds SETS=gateway for armv7, or others, and fails where a budget is missed
	@scripts/size --gate $(SETS)
