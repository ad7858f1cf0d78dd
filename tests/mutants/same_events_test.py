#!/usr/bin/env python3
"""A seed gives the same events in two builds of the same sources: the simulator's own, and that of the mutants with none
of them switched on, which has other machine code, other addresses and another place on the disk.

usage: same_events_test.py LOAM_SIM

LOAM_SEEDS: how many seeds (60); LOAM_FIRST_SEED: from which on (7000).
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
    """Hash and number of the events of each seed."""
    command = [program, "--json", "--seeds", SEEDS, "--first-seed", FIRST_SEED, "--jobs", str(os.cpu_count() or 1)]
    told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    return {line["seed"]: (line["hash"], line["events"]) for line in lines if "seed" in line}


class SameEventsTest(unittest.TestCase):
    def test_in_two_builds(self):
        run.build(os.cpu_count() or 1, lambda line: print(line, file=sys.stderr))
        one, other = events(PROGRAM), events(run.PROGRAM)
        self.assertEqual(len(one), int(SEEDS))
        self.assertEqual(one.keys(), other.keys())
        differ = [seed for seed in sorted(one) if one[seed] != other[seed]]
        self.assertEqual(differ, [], f"{PROGRAM} and {run.PROGRAM} do not agree on these seeds; is one of them older?")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
