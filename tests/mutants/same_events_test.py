#!/usr/bin/env python3
"""Tests that a seed gives the same events in two builds of the same sources: the simulator's own build, and the build
with all mutants, of which none is selected. The second build has other machine code, other addresses and another
folder.

usage: same_events_test.py LOAM_SIM

LOAM_SEEDS: number of seeds (60); LOAM_FIRST_SEED: first seed (7000).
"""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import run  # noqa: E402

PROGRAM = sys.argv[1]
SEEDS = os.environ.get("LOAM_SEEDS", "60")
FIRST_SEED = os.environ.get("LOAM_FIRST_SEED", "7000")


def events(program):
    """Returns {seed: (hash of its events, number of its events)}."""
    command = [program, "--json", "--seeds", SEEDS, "--first-seed", FIRST_SEED, "--jobs", str(os.cpu_count() or 1)]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    return {line["seed"]: (line["hash"], line["events"]) for line in lines if "seed" in line}


class SameEventsTest(unittest.TestCase):
    def test_two_builds_give_the_same_events(self):
        run.build(os.cpu_count() or 1, lambda line: print(line, file=sys.stderr))
        one, other = events(PROGRAM), events(run.PROGRAM)
        self.assertEqual(len(one), int(SEEDS))
        self.assertEqual(one.keys(), other.keys())
        differ = [seed for seed in sorted(one) if one[seed] != other[seed]]
        self.assertEqual(differ, [], f"{PROGRAM} and {run.PROGRAM} give different events for these seeds; is one of the builds older?")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
