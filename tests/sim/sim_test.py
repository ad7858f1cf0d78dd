#!/usr/bin/env python3
"""Runs a short campaign of the simulator, and tests that a seed repeats the same run.

usage: sim_test.py LOAM_SIM

LOAM_SEEDS: number of seeds (2000); LOAM_FIRST_SEED: first seed (1).
"""

import json
import os
import subprocess
import sys
import unittest

PROGRAM = sys.argv[1]


def simulate(*arguments: str) -> tuple[int, list[dict]]:
    done = subprocess.run([PROGRAM, "--json", *arguments], stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


class SimTest(unittest.TestCase):
    def test_no_seed_fails(self) -> None:
        seeds = os.environ.get("LOAM_SEEDS", "2000")
        first = os.environ.get("LOAM_FIRST_SEED", "1")
        code, lines = simulate("--seeds", seeds, "--first-seed", first, "--jobs", str(os.cpu_count() or 1))
        failures = [f"seed {line['seed']}: {line['message']}" for line in lines[:-1] if line["failed"]]
        total = lines[-1]
        print({name: value for name, value in total.items() if name != "probes"})
        self.assertEqual(failures, [], "make sim SEED=<seed> repeats the run of a seed")
        self.assertEqual(code, 0)
        self.assertEqual(total["seeds"], int(seeds))
        # A campaign without faults or without load proves nothing.
        self.assertGreater(total["faults"], total["seeds"])
        self.assertGreater(total["commits"], 20 * total["seeds"])

    def test_a_seed_repeats_itself(self) -> None:
        _, once = simulate("--seeds", "24", "--first-seed", "7000")
        # The second run has other batches and other seeds, in other child processes.
        _, twice = simulate("--seeds", "20", "--first-seed", "7004", "--jobs", "2")
        hashes = {line["seed"]: (line["hash"], line["events"]) for line in once[:-1]}
        for line in twice[:-1]:
            self.assertEqual((line["hash"], line["events"]), hashes[line["seed"]], f"seed {line['seed']}")
        self.assertEqual(len(twice), 21)
        self.assertEqual(len(set(hashes.values())), 24, "two seeds gave the same run")

    def test_bad_options_are_refused(self) -> None:
        done = subprocess.run([PROGRAM, "--seeds", "many"], capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("seeds", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
