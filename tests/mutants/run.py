#!/usr/bin/env python3
"""Builds the simulator with all mutants in it, and sees that each one is found: `make mutants`.

Each mutant runs seed after seed until one fails. What has to find it is an invariant that has a name; a mutant that
crashes, or that survives all seeds, fails the whole. The program without a mutant has to pass the seeds that they failed.
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

# Seeds of the first round; each later one is as long as all before it together.
FIRST_ROUND = 8
# Of one process: so the last mutants keep all cores busy.
PIECE = 256
# What the campaign calls the end of a process or of its time, which is no judgement.
CRASHES = ("assertion", "hang", "crash")
# The short test runs QUICK_FACTOR times the seeds that a mutant took last, and at least QUICK_SEEDS.
QUICK_FACTOR, QUICK_SEEDS = 8, 64


@dataclasses.dataclass
class Fate:
    """What became of a mutant (None: of the program as it is)."""

    mutant: mutants_module.Mutant | None
    limit: int
    ran: int = 0
    seed: int = 0  # the first that failed
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
            return f"FAILS: {self.invariant}" if self.found else "passes them"
        if not self.found:
            return "SURVIVES" if self.ran else "not run: interrupted"
        return self.invariant if self.good else f"CRASHES: {self.invariant}"


def build(jobs, log):
    """Generates the tree and builds the program in it; two at one time would disturb each other."""
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
            told = subprocess.run(command, cwd=generate.TREE, capture_output=True, text=True, check=False)
            if told.returncode != 0:
                raise MutantError(f"{' '.join(command)} failed in {generate.TREE}:\n{told.stdout}{told.stderr}")
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
        """Ends the run; the result is what is known by now."""
        self.stopped = True
        for process in list(self.running):
            process.kill()

    def run_piece(self, fate, first, count):
        """Runs the seeds [first, first + count) of a mutant, unless an earlier one has failed."""
        with self.lock:
            if (fate.found and fate.seed < first) or self.stopped:
                return
        command = [self.program, "--json", "--stop-at-failure", "--seeds", str(count), "--first-seed", str(first)]
        if fate.mutant:
            command += ["--mutant", fate.mutant.name]
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.running.add(process)
        text = process.communicate()[0]
        self.running.discard(process)
        self.take(fate, first, text, process.returncode, time.monotonic() - begin)

    def take(self, fate, first, text, code, seconds):
        failed = None
        ran = 0
        for line in text.splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                told = json.loads(line)
                if "seed" not in told:
                    continue
                ran += 1
                if told["failed"] and (failed is None or told["seed"] < failed["seed"]):
                    failed = told
        if failed is None and code != 0 and not self.stopped:
            failed = {"seed": first + ran, "invariant": "crash", "message": f"exit code {code}\n{text[-2000:]}"}
        with self.lock:
            fate.ran += ran
            fate.seconds += seconds
            if failed and (not fate.found or failed["seed"] < fate.seed):
                fate.seed, fate.invariant, fate.message = failed["seed"], failed["invariant"], failed["message"]

    def run(self, fates, first_seed, on_round=lambda first, count: None):
        """All fates, a round of seeds after the other."""
        first, count = first_seed, FIRST_ROUND
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            while not self.stopped:
                pieces = []
                for fate in fates:
                    end = min(first + count, first_seed + fate.limit)
                    if fate.found or end <= first:
                        continue
                    pieces += [(fate, at, min(PIECE, end - at)) for at in range(first, end, PIECE)]
                if not pieces:
                    return
                on_round(first, count)
                list(pool.map(lambda piece: self.run_piece(*piece), pieces))
                first, count = first + count, first + count - first_seed


def table(fates, first_seed):
    rows = [("mutant", "rule", "seeds", "found by")]
    for fate in fates:
        seeds = fate.seed - first_seed + 1 if fate.found else f">{fate.ran}"
        rows.append((fate.name, fate.mutant.rule if fate.mutant else "", str(seeds), fate.verdict()))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return "\n".join("  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[3]]) for row in rows)


def choose(mutants, arguments):
    """The mutants to run, each with the seeds that it may take."""
    if arguments.only:
        known = {mutant.name: mutant for mutant in mutants}
        unknown = [name for name in arguments.only if name not in known]
        if unknown:
            raise MutantError(f"there is no mutant {', '.join(unknown)}; generate.py --list names them")
        return [Fate(known[name], arguments.seeds) for name in arguments.only]
    if not arguments.quick:
        return [Fate(mutant, arguments.seeds) for mutant in mutants]
    return [
        Fate(mutant, min(arguments.seeds, max(QUICK_SEEDS, QUICK_FACTOR * mutant.seeds)))
        for mutant in sorted(mutants, key=lambda mutant: mutant.seeds)
        if mutant.quick
    ]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], epilog="Ctrl-C: the table as it is by now.")
    parser.add_argument("only", nargs="*", metavar="MUTANT", help="these alone")
    parser.add_argument("--seeds", type=int, default=10_000, help="at most so many of each (%(default)s)")
    parser.add_argument("--first-seed", type=int, default=1, help="from this one on (%(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at one time (%(default)s)")
    parser.add_argument(
        "--quick", action="store_true", help="the short test: only mutants that die quickly; the others are only compiled"
    )
    parser.add_argument("--no-build", action="store_true", help="take the program as it is")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    parser.add_argument("--verbose", action="store_true", help="with what each was found by")
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    arguments = parse()

    def log(line):
        print(line, file=sys.stderr, flush=True)

    try:
        mutants = mutants_module.load(generate.LIST) if arguments.no_build else build(arguments.jobs, log)
        fates = choose(mutants, arguments)
    except MutantError as error:
        log(f"mutants: {error}")
        return 1
    if not arguments.program.is_file():
        log(f"mutants: there is no {arguments.program}")
        return 1
    runner = Runner(arguments.program, arguments.jobs)
    signal.signal(signal.SIGINT, lambda *_: runner.stop())
    first = arguments.first_seed
    runner.run(fates, first, lambda begin, count: log(f"seeds {begin} to {begin + count - 1} …"))
    longest = max((fate.seed - first + 1 for fate in fates if fate.found), default=0)
    product = Fate(None, longest)
    # The product passes the same seeds: so it was the mutants that failed. Ctrl-C has not stopped this runner.
    Runner(arguments.program, arguments.jobs).run([product], first)
    fates.append(product)

    if arguments.json:
        for fate in fates:
            row = {"mutant": fate.name, "rule": fate.mutant.rule if fate.mutant else "", "good": fate.good}
            row |= {"found": fate.found, "seeds": fate.seed - first + 1 if fate.found else fate.ran}
            row |= {"invariant": fate.invariant, "message": fate.message, "seconds": round(fate.seconds, 1)}
            print(json.dumps(row))
    else:
        print(table(fates, first))
        for fate in fates:
            if fate.found and (arguments.verbose or not fate.good):
                print(f"\n{fate.name}, seed {fate.seed}: {fate.invariant}: {fate.message}")
    left = [fate for fate in fates if fate.mutant and not fate.found and not fate.ran]
    bad = [fate for fate in fates if not fate.good and fate not in left]
    found = sum(fate.good for fate in fates if fate.mutant)
    compiled = len(mutants) - len(fates) + 1
    log(f"{found} found, {len(bad)} not, {len(left)} not run, {compiled} only compiled")
    for fate in bad:
        if fate.mutant and fate.mutant.needs:
            log(f"  {fate.name} needs: {fate.mutant.needs}")
    return 1 if bad or found == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
