"""Tests the command line of loam-bench: several suites in one command run in the order in which they are named, each
with its own options."""

import json
import re
import subprocess
import sys
import unittest

BENCH = sys.argv.pop(1)
COMMIT = ("commit", "--others", "20000")
FACTORS = ("gc", "--only", "factors", "--records", "2000")


def bench(*arguments):
    return subprocess.run([BENCH, *arguments, "--quick"], check=False, capture_output=True, text=True, timeout=300)


class Suites(unittest.TestCase):
    def figures(self, *arguments):
        run = bench(*arguments)
        self.assertEqual(run.returncode, 0, run.stderr[-2000:])
        return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]

    def test_two_suites_run_in_the_order_of_the_command(self):
        for command, order in (((*COMMIT, *FACTORS), ["commit", "gc"]), ((*FACTORS, *COMMIT), ["gc", "commit"])):
            rows = self.figures(*command)
            self.assertEqual(list(dict.fromkeys(row["figure"].split(".")[0] for row in rows)), order)
            others = [row["options"]["others"] for row in rows if row["figure"] == "commit.descriptor_bytes_p99"]
            self.assertEqual(others, [20000])
            records = {row["options"]["records"] for row in rows
                       if row["figure"].startswith("gc.") and row["value"] is not None}
            self.assertEqual(records, {2000})

    def test_one_run_reports_all_factors(self):
        figures = {row["figure"]: row["value"] for row in self.figures(*FACTORS)}
        self.assertEqual(set(figures), {f"gc.factor_{name}" for name in (
            "batching", "group", "prefetch", "huge_pages", "compaction_speed", "compaction_memory", "interval_rule",
            "head_pages")})
        for name, value in figures.items():
            if name != "gc.factor_head_pages" or value is not None:  # with one core there is no second writer
                self.assertGreater(value, 0, name)

    def test_an_option_of_another_suite_is_refused(self):
        self.assertNotEqual(bench(*COMMIT, "gc", "--clients", "7").returncode, 0)
        self.assertNotEqual(bench().returncode, 0, "a command must name a suite")

    def test_every_number_has_a_range_and_one_syntax(self):
        suites = re.findall(r"^  (\w+) +\S", bench("--help").stdout.split("Subcommands:")[1], re.MULTILINE)
        self.assertIn("commit", suites)
        numbers = 0
        for suite in [None, *suites]:
            place = [suite] if suite else []
            text = bench(*place, "--help").stdout
            self.assertNotRegex(text, r"  --[\w-]+ (UINT|INT|FLOAT)", f"{suite}: a number without a range")
            for name in re.findall(r"^  (--[\w-]+) (?:N|NUMBER):", text, re.MULTILINE):
                numbers += 1
                for bad in ("-1", "18446744073709551616", "", "010"):
                    run = bench(*(place or ["commit"]), name, bad)
                    self.assertEqual(run.returncode, 2, f"{suite} {name} '{bad}'")
                    self.assertRegex(run.stderr, f"{name}: expected .* from .* to .*, not '{bad}'")
        self.assertGreater(numbers, 40)

    def test_lost_output_is_a_failure(self):
        run = bench(*COMMIT, "--json", "/dev/full")
        self.assertEqual((run.returncode, run.stderr.splitlines()[-1]),
                         (1, "loam-bench: /dev/full is incomplete: it cannot be written to its end"))
        for arguments in (["--help"], COMMIT):
            with open("/dev/full", "wb") as full:
                run = subprocess.run([BENCH, *arguments, "--quick"], check=False, stdout=full, stderr=subprocess.PIPE,
                                     text=True, timeout=300)
            self.assertEqual(run.returncode, 1)
            self.assertIn("the standard output cannot be written: No space left on device", run.stderr)


if __name__ == "__main__":
    unittest.main()
