# The few commands that a person types. Everything real is in CMakeLists.txt, CMakePresets.json and scripts/.

.DEFAULT_GOAL := build
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
CTEST_FLAGS ?=
# Suites of `make bench`, and the options given to each.
SUITES ?= index net peers tx fields scan gc commit bdtree retail sim
BENCH_FLAGS ?= --quick
# How long `make stress` goes on: rounds of every test with threads, then the soak of a node's memory.
ROUNDS ?= 20
SOAK_SECONDS ?= 600
# Options of `make mutants`; tests/mutants/run.py --help names them.
MUTANTS_FLAGS ?=
# Seeds of `make sim`: SEEDS from FIRST_SEED on; or one SEED alone, with its trace.
SEEDS ?= 1000
FIRST_SEED ?= 1
SEED ?=

# How long `make fuzz` gives each target, and how many mutated messages it sends to living servers afterwards.
FUZZ_SECONDS ?= 60
LIVE_MESSAGES ?= 10000000

.PHONY: help build demo setup test test-rdma bench-rdma check lint fuzz bench sim stress mutants prove-setup clean test-programs

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the programs, as they ship, into build/release/bin
	cmake --preset release
	cmake --build --preset release -j $(JOBS)

setup: ## install the Debian packages that are missing
	scripts/setup

demo: setup ## install what is missing, build, and watch Loam work
	cmake --preset release
	cmake --build --preset release -j $(JOBS) --target loam loam-commit-manager loam-storage-node
	build/release/bin/loam demo

# One summary for four builds: build/test holds nothing but a list of the build directories for ctest. Under the
# sanitizers only the test programs that ask for them exist (loam_test in cmake/loam.cmake); their names begin with
# "asan." and "tsan.". The fuzz targets' begin with "fuzz.".
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

test: setup test-programs ## build and run all tests, those for sanitizers under them
	ctest --test-dir build/test -j $(JOBS) --timeout 600 --output-on-failure --no-tests=error -LE '^campaign$$' $(CTEST_FLAGS)

# The module that a program loads lies in lib/loam beside its folder.
RDMA_GUEST = tests/rdma/guest.py run --timeout 1800 --memory 3072 --
# In guests with Soft-RoCE under QEMU; skipped, with the reason, where there can be none: tests/rdma.
test-rdma: setup ## all that runs over InfiniBand verbs, in emulated guests (no RDMA device is needed)
	cmake --preset dev
	cmake --build --preset dev -j $(JOBS) --target net_test rdma_access_test loam-rdma loam-net-probe loam-commit-manager \
	  loam-storage-node loam loam-workload loam-bench
	ctest --test-dir build/dev --timeout 600 --output-on-failure --no-tests=error -L '^rdma$$' $(CTEST_FLAGS)
	$(RDMA_GUEST) build/dev/bin/loam-bench rdma --quick --host 10.77.0.1 || test $$? -eq 77

bench-rdma: build ## the figures of verbs beside perftest's and TCP's, as built to ship, in an emulated guest
	$(RDMA_GUEST) build/release/bin/loam-bench rdma --host 10.77.0.1 $(BENCH_FLAGS)

# Real threads meet differently in every round; the explorer takes other seeds for a larger factor.
stress: export LOAM_EXPLORE_FACTOR ?= $(ROUNDS)
stress: setup test-programs ## ROUNDS (20) of every test with threads, as many times the explorer's schedules, SOAK_SECONDS (600) of churn
	ctest --test-dir build/test -j 2 --timeout 3600 --output-on-failure --no-tests=error -L '^stress$$' --repeat until-fail:$(ROUNDS) $(CTEST_FLAGS)
	ctest --test-dir build/test -j 2 --timeout 3600 --output-on-failure --no-tests=error -L '^sim$$' $(CTEST_FLAGS)
	LOAM_SOAK_SECONDS=$(SOAK_SECONDS) build/dev/storage-node/src/server/storage_soak_test

# The copy of the sources with all mutants, its build, and what they are found by: tests/mutants.
mutants: setup ## see every deliberate breach of the protocol found by the simulator; MUTANTS_FLAGS="--seeds 1000"
	tests/mutants/run.py $(MUTANTS_FLAGS)

sim: setup ## simulate SEEDS (1000) clusters from FIRST_SEED on, or replay one: SEED=4711
	cmake --preset dev
	cmake --build --preset dev -j $(JOBS) --target loam-sim
	build/dev/tests/sim/loam-sim --shrink $(if $(SEED),--seed $(SEED) --trace,--seeds $(SEEDS) --first-seed $(FIRST_SEED) --jobs $(JOBS))

check: setup ## format, lint of what has changed, names, lengths, links, spelling and the other rules of HACKING.md
	scripts/check

lint: setup ## lint the whole tree, and record the commit: make check then looks only at what has changed since
	scripts/check --record tidy

fuzz: setup ## FUZZ_SECONDS (60) of every fuzz target, then LIVE_MESSAGES (10000000) mutated messages to living servers
	cmake --preset fuzz
	cmake --build --preset fuzz -j $(JOBS)
	python3 tests/fuzz/run.py --seconds $(FUZZ_SECONDS) --jobs $(JOBS)
	cmake --preset dev
	cmake --build --preset dev -j $(JOBS) --target loam loam-commit-manager loam-storage-node loam-live-mutations
	LIVE_MESSAGES=$(LIVE_MESSAGES) python3 tests/fuzz/live_test.py $(addprefix build/dev/,bin/loam-commit-manager \
	  bin/loam-storage-node bin/loam tests/fuzz/loam-live-mutations)

bench: setup build ## quick figures of every suite; SUITES="net tx" BENCH_FLAGS="--seed 7" choose others
	cmake --build --preset release -j $(JOBS) --target loam-sim
	set -e; for suite in $(SUITES); do build/release/bin/loam-bench $$suite $(BENCH_FLAGS); done

prove-setup: ## build Loam in a bare Debian 12 made for the purpose (root, minutes)
	scripts/prove-setup

clean: ## remove build/
	rm -rf build
