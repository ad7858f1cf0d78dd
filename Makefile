# The commands for daily work. The build itself is in CMakeLists.txt, CMakePresets.json and scripts/.

.DEFAULT_GOAL := build
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
CTEST_FLAGS ?=
# Suites of `make bench`, and the options that each suite gets.
SUITES ?= analytics index net peers tx fields scan gc commit bdtree retail sim
BENCH_FLAGS ?= --quick
# Extent of `make stress`: rounds of every test with threads, then seconds of the memory soak test of a storage node.
ROUNDS ?= 20
SOAK_SECONDS ?= 600
# Options of `make mutants`; `tests/mutants/run.py --help` lists them.
MUTANTS_FLAGS ?=
# Seeds of `make sim`: SEEDS seeds beginning with FIRST_SEED, or one SEED alone, with its trace.
SEEDS ?= 1000
FIRST_SEED ?= 1
SEED ?=

# Extent of `make fuzz`: seconds for each target, then mutated messages to running servers.
FUZZ_SECONDS ?= 60
LIVE_MESSAGES ?= 10000000

.PHONY: help build deb demo setup test test-deploy test-rdma bench-rdma check lint fuzz bench sim stress mutants prove-setup docs clean test-programs

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build the programs that ship into build/release/bin
	cmake --preset release
	cmake --build --preset release -j $(JOBS)

deb: setup build ## make Debian packages of the programs that ship, into build/deb
	scripts/deb

setup: ## install the Debian packages that are missing
	scripts/setup

demo: setup ## install missing packages, build, start a demo cluster and check its answers
	cmake --preset release
	cmake --build --preset release -j $(JOBS) --target loam loam-commit-manager loam-storage-node
	build/release/bin/loam demo

# Four builds give one summary: build/test only holds a list of the build directories for ctest. A sanitizer preset has
# only the test programs that name the sanitizer (loam_test in cmake/loam.cmake); the names of their tests begin with
# "asan." or "tsan.". Names of fuzz tests begin with "fuzz.".
test-programs:
	cmake --preset dev
	cmake --build --preset dev -j $(JOBS)
	cmake --preset asan
	cmake --build --preset asan -j $(JOBS) --target loam_tests
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS) --target loam_tests
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS)
	@mkdir -p build/test
	@printf 'subdirs("%s")\n' $(foreach preset,dev asan tsan fuzz,"$(CURDIR)/build/$(preset)") > build/test/CTestTestfile.cmake

test: setup test-programs ## build and run all tests, some of them also under sanitizers
	ctest --test-dir build/test -j $(JOBS) --timeout 600 --output-on-failure --no-tests=error -LE '^campaign$$' $(CTEST_FLAGS)

# Runs on machines with a real systemd (systemd-nspawn). Where there can be none, the test is skipped with the reason.
test-deploy: deb ## deploy a cluster on three machines with the playbooks, upgrade it, and remove it (needs root)
	tests/deploy/ansible/deploy_test.py --packages build/deb || test $$? -eq 77

# Programs load the module for RDMA from lib/loam beside their folder.
RDMA_GUEST = tests/rdma/guest.py run --timeout 1800 --memory 3072 --
# Runs in guests with Soft-RoCE under QEMU. Where there can be no guest, the tests are skipped with the reason.
test-rdma: setup ## test and measure InfiniBand verbs in emulated guests (needs no RDMA device)
	cmake --preset dev
	cmake --build --preset dev -j $(JOBS) --target net_test rdma_access_test loam-rdma loam-net-probe loam-commit-manager \
	  loam-storage-node loam loam-workload loam-bench
	ctest --test-dir build/dev --timeout 600 --output-on-failure --no-tests=error -L '^rdma$$' $(CTEST_FLAGS)
	$(RDMA_GUEST) build/dev/bin/loam-bench rdma --quick --host 10.77.0.1 || test $$? -eq 77

bench-rdma: build ## compare verbs with perftest and TCP, with the programs that ship, in an emulated guest
	$(RDMA_GUEST) build/release/bin/loam-bench rdma --host 10.77.0.1 $(BENCH_FLAGS)

# Each round schedules real threads differently; the explorer uses further seeds for a larger factor.
stress: export LOAM_EXPLORE_FACTOR ?= $(ROUNDS)
stress: setup test-programs ## run tests with threads ROUNDS (20) times, explore ROUNDS times the schedules, soak memory for SOAK_SECONDS (600)
	ctest --test-dir build/test -j 2 --timeout 3600 --output-on-failure --no-tests=error -L '^stress$$' --repeat until-fail:$(ROUNDS) $(CTEST_FLAGS)
	ctest --test-dir build/test -j 2 --timeout 3600 --output-on-failure --no-tests=error -L '^sim$$' $(CTEST_FLAGS)
	LOAM_SOAK_SECONDS=$(SOAK_SECONDS) build/dev/storage-node/src/server/storage_soak_test

# tests/mutants describes the copy of the sources with all mutants, its build, and the search for them.
mutants: setup ## check that the simulator finds every mutant; MUTANTS_FLAGS="--seeds 1000"
	tests/mutants/run.py $(MUTANTS_FLAGS)

sim: setup ## simulate SEEDS (1000) clusters from FIRST_SEED on, or replay one: SEED=4711
	cmake --preset dev
	cmake --build --preset dev -j $(JOBS) --target loam-sim
	build/dev/tests/sim/loam-sim --shrink $(if $(SEED),--seed $(SEED) --trace,--seeds $(SEEDS) --first-seed $(FIRST_SEED) --jobs $(JOBS))

check: setup ## check formatting, names, lengths, links, spelling and the other rules of HACKING.md; lint changed files
	scripts/check

lint: setup ## lint the whole tree and record the commit, so that make check lints only later changes
	scripts/check --record tidy

fuzz: setup ## run every fuzz target for FUZZ_SECONDS (60), then send LIVE_MESSAGES (10000000) mutated messages to servers
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS)
	python3 tests/fuzz/run.py --seconds $(FUZZ_SECONDS) --jobs $(JOBS)
	cmake --preset dev
	cmake --build --preset dev -j $(JOBS) --target loam loam-commit-manager loam-storage-node loam-live-mutations
	LIVE_MESSAGES=$(LIVE_MESSAGES) python3 tests/fuzz/live_test.py $(addprefix build/dev/,bin/loam-commit-manager \
	  bin/loam-storage-node bin/loam tests/fuzz/loam-live-mutations)

bench: setup build ## measure every suite briefly; SUITES="net tx" and BENCH_FLAGS="--seed 7" choose others
	cmake --build --preset release -j $(JOBS) --target loam-sim
	set -e; for suite in $(SUITES); do build/release/bin/loam-bench $$suite $(BENCH_FLAGS); done

prove-setup: ## build Loam in a new bare Debian 12 (needs root and minutes)
	scripts/prove-setup

docs: setup ## build the reference of the public headers, as HTML, into build/docs
	mkdir -p build
	doxygen docs/Doxyfile
	@echo "build/docs/html/index.html"

clean: ## remove build/
	rm -rf build
