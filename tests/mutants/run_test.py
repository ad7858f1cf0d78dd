"""Tests what run.py concludes from the output of loam-sim. A script takes the place of loam-sim and fails at given seeds."""

import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

sys.dont_write_bytecode = True
import run  # noqa: E402
from mutants import Mutant  # noqa: E402

# Stands in for loam-sim. The name of a mutant, or its entry in MUTANTS, gives the first seed that fails and the violated
# invariant: "5-lost-update".
PROGRAM = """#!/usr/bin/env python3
import argparse, json, sys
parser = argparse.ArgumentParser()
for option in ("--json", "--stop-at-failure"):
    parser.add_argument(option, action="store_true")
for option in ("--seeds", "--first-seed"):
    parser.add_argument(option, type=int)
parser.add_argument("--mutant", default="NONE")
arguments = parser.parse_args()
at, invariant = MUTANTS.get(arguments.mutant, arguments.mutant).split("-", 1)
failures = 0
for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
    failed = seed >= int(at)
    while failed and invariant == "endless":
        pass
    if failed and invariant == "dies":
        sys.exit(134)
    print(json.dumps({"seed": seed, "failed": failed, "invariant": invariant if failed else "", "message": "why"}))
    if failed:
        failures = 1
        break
print(json.dumps({"seeds": 1, "failures": failures}))
sys.exit(failures)
"""


class RunTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.program = pathlib.Path(holder.name) / "program"
        self.set_product("100000-nothing")

    def set_product(self, product, mutants=None):
        self.program.write_text(PROGRAM.replace("NONE", product).replace("MUTANTS", repr(mutants or {})))
        self.program.chmod(0o755)

    def run_mutants(self, *names, limit=300, first=1):
        results = [run.MutantResult(Mutant(name, "R1", "a breach", ()), limit) for name in names]
        run.Runner(self.program, 2).run(results, first)
        return results

    def test_names_the_first_seed_that_fails(self):
        for first in (1, 1000):
            names = [f"{first + n - 1}-lost-update" for n in (1, 8, 9, 258, 300)]
            results = self.run_mutants(*names, first=first)
            self.assertEqual([result.seed - first + 1 for result in results], [1, 8, 9, 258, 300])
            self.assertTrue(all(result.good for result in results))
            self.assertEqual(run.table(results, first).splitlines()[4].split()[1:], ["R1", "258", "lost-update"])

    def test_survivor_is_a_failure(self):
        result = self.run_mutants("301-lost-update")[0]
        self.assertFalse(result.good)
        self.assertEqual((result.ran, result.verdict()), (300, "SURVIVES"))

    def test_crash_is_not_a_violation(self):
        for name in ("5-assertion", "5-hang", "5-dies"):
            result = self.run_mutants(name)[0]
            self.assertEqual(result.seed, 5)
            self.assertFalse(result.good)
            self.assertIn("CRASHES", result.verdict())

    def test_stop_ends_running_processes(self):
        results = [run.MutantResult(Mutant("1-endless", "R1", "a breach", ()), 10_000)]
        runner = run.Runner(self.program, 2)
        round_begun = threading.Event()
        thread = threading.Thread(target=runner.run, args=(results, 1, lambda first, count: round_begun.set()))
        thread.start()
        round_begun.wait()
        while thread.is_alive():
            runner.stop()
            thread.join(0.01)
        self.assertFalse(results[0].found)

    def run_program(self, *options):
        command = [sys.executable, run.__file__, "--no-build", "--json", "--program", self.program, *options]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        return completed.returncode, [json.loads(line) for line in completed.stdout.splitlines()], completed.stderr

    def test_exit_code_reports_survivors_and_a_failing_product(self):
        name = run.mutants_module.load(run.generate.LIST)[0].name
        self.set_product("1000-nothing", {name: "3-lost-update"})
        code, rows, _ = self.run_program(name, "--seeds", "20")
        self.assertEqual(code, 0)
        self.assertEqual([(row["mutant"], row["good"]) for row in rows], [(name, True), ("(none)", True)])
        self.assertEqual(rows[0]["seeds"], 3)
        self.assertEqual(rows[1]["seeds"], 3)
        code, rows, stderr = self.run_program(name, "--seeds", "2")
        self.assertEqual((code, rows[0]["good"]), (1, False))
        self.assertIn("0 found, 1 not found", stderr)
        self.set_product("2-dirty-read", {name: "3-lost-update"})
        code, rows, _ = self.run_program(name, "--seeds", "20")
        self.assertEqual((code, rows[1]["good"], rows[1]["invariant"]), (1, False, "dirty-read"))

    def test_unknown_mutant(self):
        code, _, stderr = self.run_program("no-such-mutant")
        self.assertEqual(code, 1)
        self.assertIn("there is no mutant no-such-mutant", stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
