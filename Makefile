# The few commands that a person types. Everything real is in CMakeLists.txt, CMakePresets.json and scripts/.

.DEFAULT_GOAL := build
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

JOBS ?= $(shell nproc)
CTEST_FLAGS ?=
# Suites of `make bench`, and the options given to each.
SUITES ?= index net tx scan commit
BENCH_FLAGS ?= --quick
# How long `make stress` goes on.
ROUNDS ?= 20

.PHONY: help build demo setup test check bench stress prove-setup clean test-programs

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## the programs, as they ship, into build/release/bin
	cmake --preset release
	cmake --build --preset release -j $(JOBS)

setup: ## install the Debian packages that are missing
	scripts/setup

demo: setup build ## install what is missing, build, and watch Loam work
	build/release/bin/loam demo

# One summary for three builds: build/test holds nothing but a list of the three build directories for ctest. Under the
# sanitizers only the test programs that ask for them exist (loam_test in cmake/loam.cmake); their names begin with
# "asan." and "tsan.".
test-programs:
	cmake --preset dev
	cmake --build --preset dev -j $(JOBS)
	cmake --preset asan
	cmake --build --preset asan -j $(JOBS) --target loam_tests
	cmake --preset tsan
	cmake --build --preset tsan -j $(JOBS) --target loam_tests
	@mkdir -p build/test
	@printf 'subdirs("%s")\n' $(foreach preset,dev asan tsan,"$(CURDIR)/build/$(preset)") > build/test/CTestTestfile.cmake

test: setup test-programs ## build and run all tests, those for sanitizers under them
	ctest --test-dir build/test -j $(JOBS) --timeout 120 --output-on-failure --no-tests=error -LE '^campaign$$' $(CTEST_FLAGS)

# Real threads meet differently in every round; the explorer takes other seeds for a larger factor.
stress: export LOAM_EXPLORE_FACTOR ?= $(ROUNDS)
stress: setup test-programs ## ROUNDS (20) of every test with threads, and as many times the explorer's schedules
	ctest --test-dir build/test -j 2 --timeout 3600 --output-on-failure --no-tests=error -L '^stress$$' --repeat until-fail:$(ROUNDS) $(CTEST_FLAGS)
	ctest --test-dir build/test -j 2 --timeout 3600 --output-on-failure --no-tests=error -L '^sim$$' $(CTEST_FLAGS)

check: setup ## format, lint, names, lengths, links, spelling and the other rules of HACKING.md
	scripts/check

bench: setup build ## quick figures of every suite; SUITES="net tx" BENCH_FLAGS="--seed 7" choose others
	set -e; for suite in $(SUITES); do build/release/bin/loam-bench $$suite $(BENCH_FLAGS); done

prove-setup: ## build Loam in a bare Debian 12 made for the purpose (root, minutes)
	scripts/prove-setup

clean: ## remove build/
	rm -rf build
