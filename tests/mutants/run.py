#!/usr/bin/env python3
"""Builds the simulator with all mutants in it, and checks that it finds each of them: `make mutants`.

Each mutant runs seed after seed until one fails. A named invariant must find the mutant; a mutant that crashes the
simulator or survives all seeds fails the run. The program without a mutant must pass the seeds that found the mutants.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
import generate  # noqa: E402
import mutants as mutants_module  # noqa: E402
from mutants import MutantError  # noqa: E402

PROGRAM = generate.TREE / "build/dev/tests/sim/loam-sim"

# Seeds of the first round. Each later round has as many seeds as all earlier ones together.
FIRST_ROUND = 8
# Seeds that one process runs. The number is small, so that the last mutants keep all cores busy.
PIECE = 256
# The names that loam-sim gives to an assertion failure, a time-out and a crash. These are not violations of an invariant.
CRASHES = ("assertion", "hang", "crash")
# The short test runs QUICK_FACTOR times as many seeds as the last campaign needed, and at least QUICK_SEEDS.
QUICK_FACTOR, QUICK_SEEDS = 8, 64


@dataclasses.dataclass
class MutantResult:
    """The outcome of a mutant. `mutant` is None for the run without a mutant."""

    mutant: mutants_module.Mutant | None
    limit: int
    ran: int = 0
    seed: int = 0  # the first seed that failed
    invariant: str = ""
    message: str = ""
    seconds: float = 0.0

    @property
    def name(self):
        return self.mutant.name if self.mutant else "(none)"

    @property
    def found(self):
        return self.seed != 0

    @property
    def good(self):
        if self.mutant is None:
            return not self.found
        return self.found and self.invariant not in CRASHES

    def verdict(self):
        if self.mutant is None:
            return f"FAILS: {self.invariant}" if self.found else "no seed fails"
        if not self.found:
            return "SURVIVES" if self.ran else "not run: interrupted"
        return self.invariant if self.good else f"CRASHES: {self.invariant}"


def build(jobs, log):
    """Generates the tree and builds the program in it. A lock file keeps two processes from doing so at the same time."""
    mutants = mutants_module.load(generate.LIST)
    generate.TREE.parent.mkdir(parents=True, exist_ok=True)
    with (generate.TREE.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        changed = generate.generate(generate.ROOT, generate.TREE, mutants)
        log(f"{len(mutants)} mutants; {changed} files changed")
        for command in (
            ["cmake", "--preset", "dev"],
            ["cmake", "--build", "--preset", "dev", "-j", str(jobs), "--target", "loam-sim"],
        ):
            result = subprocess.run(command, cwd=generate.TREE, capture_output=True, text=True, check=False)
            if result.returncode != 0:
                raise MutantError(f"{' '.join(command)} failed in {generate.TREE}:\n{result.stdout}{result.stderr}")
    return mutants


class Runner:
    """Runs seeds of mutants in several processes."""

    def __init__(self, program, jobs):
        self.program = program
        self.jobs = jobs
        self.stopped = False
        self.lock = threading.Lock()
        self.running = set()

    def stop(self):
        """Ends the run: kills the running processes and starts no more. The results so far remain."""
        self.stopped = True
        for process in list(self.running):
            process.kill()

    def run_piece(self, result, first, count):
        """Runs the seeds [first, first + count) of a mutant, unless an earlier seed has failed."""
        with self.lock:
            if (result.found and result.seed < first) or self.stopped:
                return
        command = [self.program, "--json", "--stop-at-failure", "--seeds", str(count), "--first-seed", str(first)]
        if result.mutant:
            command += ["--mutant", result.mutant.name]
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.running.add(process)
        text = process.communicate()[0]
        self.running.discard(process)
        self.record_result(result, first, text, process.returncode, time.monotonic() - begin)

    def record_result(self, result, first, text, code, seconds):
        failed = None
        ran = 0
        for line in text.splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                row = json.loads(line)
                if "seed" not in row:
                    continue
                ran += 1
                if row["failed"] and (failed is None or row["seed"] < failed["seed"]):
                    failed = row
        if failed is None and code != 0 and not self.stopped:
            failed = {"seed": first + ran, "invariant": "crash", "message": f"exit code {code}\n{text[-2000:]}"}
        with self.lock:
            result.ran += ran
            result.seconds += seconds
            if failed and (not result.found or failed["seed"] < result.seed):
                result.seed, result.invariant, result.message = failed["seed"], failed["invariant"], failed["message"]

    def run(self, results, first_seed, on_round=lambda first, count: None):
        """Runs rounds of seeds until every mutant is found or has run all its seeds."""
        first, count = first_seed, FIRST_ROUND
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            while not self.stopped:
                pieces = []
                for result in results:
                    end = min(first + count, first_seed + result.limit)
                    if result.found or end <= first:
                        continue
                    pieces += [(result, at, min(PIECE, end - at)) for at in range(first, end, PIECE)]
                if not pieces:
                    return
                on_round(first, count)
                list(pool.map(lambda piece: self.run_piece(*piece), pieces))
                first, count = first + count, first + count - first_seed


def table(results, first_seed):
    rows = [("mutant", "rule", "seeds", "found by")]
    for result in results:
        seeds = result.seed - first_seed + 1 if result.found else f">{result.ran}"
        rows.append((result.name, result.mutant.rule if result.mutant else "", str(seeds), result.verdict()))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join("  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[3]]) for row in rows)


def choose(mutants, arguments):
    """Returns the mutants to run, each with its largest number of seeds."""
    if arguments.only:
        known = {mutant.name: mutant for mutant in mutants}
        unknown = [name for name in arguments.only if name not in known]
        if unknown:
            raise MutantError(f"there is no mutant {', '.join(unknown)}; generate.py --list names them")
        return [MutantResult(known[name], arguments.seeds) for name in arguments.only]
    if not arguments.quick:
        return [MutantResult(mutant, arguments.seeds) for mutant in mutants]
    return [
        MutantResult(mutant, min(arguments.seeds, max(QUICK_SEEDS, QUICK_FACTOR * mutant.seeds)))
        for mutant in sorted(mutants, key=lambda mutant: mutant.seeds)
        if mutant.quick
    ]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="Ctrl-C prints the results so far.")
    parser.add_argument("only", nargs="*", metavar="MUTANT", help="run only these mutants")
    parser.add_argument("--seeds", type=int, default=10_000, help="largest number of seeds for each mutant (%(default)s)")
    parser.add_argument("--first-seed", type=int, default=1, help="first seed (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of parallel processes (%(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="run only the mutants that few seeds find, and only compile the others"
    )
    parser.add_argument("--no-build", action="store_true", help="use the program of an earlier build")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each mutant")
    parser.add_argument("--verbose", action="store_true", help="also print the violation that found each mutant")
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse()

    def log(line):
        print(line, file=sys.stderr, flush=True)

    try:
        mutants = mutants_module.load(generate.LIST) if arguments.no_build else build(arguments.jobs, log)
        results = choose(mutants, arguments)
    except MutantError as error:
        log(f"mutants: {error}")
        return 1
    if not arguments.program.is_file():
        log(f"mutants: there is no program {arguments.program}")
        return 1
    runner = Runner(arguments.program, arguments.jobs)
    signal.signal(signal.SIGINT, lambda *_: runner.stop())
    first = arguments.first_seed
    runner.run(results, first, lambda begin, count: log(f"seeds {begin} to {begin + count - 1} …"))
    longest = max((result.seed - first + 1 for result in results if result.found), default=0)
    product = MutantResult(None, longest)
    # The program without a mutant runs the same seeds. If it passes them, the mutants caused the failures. This run has a
    # Runner of its own, which Ctrl-C does not stop.
    Runner(arguments.program, arguments.jobs).run([product], first)
    results.append(product)

    if arguments.json:
        for result in results:
            row = {"mutant": result.name, "rule": result.mutant.rule if result.mutant else "", "good": result.good}
            row |= {"found": result.found, "seeds": result.seed - first + 1 if result.found else result.ran}
            row |= {"invariant": result.invariant, "message": result.message, "seconds": round(result.seconds, 1)}
            print(json.dumps(row))
    else:
        print(table(results, first))
        for result in results:
            if result.found and (arguments.verbose or not result.good):
                print(f"\n{result.name}, seed {result.seed}: {result.invariant}: {result.message}")
    left = [result for result in results if result.mutant and not result.found and not result.ran]
    bad = [result for result in results if not result.good and result not in left]
    found = sum(result.good for result in results if result.mutant)
    compiled = len(mutants) - len(results) + 1
    log(f"{found} found, {len(bad)} not found, {len(left)} not run, {compiled} only compiled")
    for result in bad:
        if result.mutant and result.mutant.needs:
            log(f"  {result.name} needs: {result.mutant.needs}")
    return 1 if bad or found == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
