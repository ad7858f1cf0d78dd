"""Tests loam-bench with environments that lack DuckDB, and with a program that replies with wrong sums. The tests do
not need DuckDB. Argument: loam-bench."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

DEADLINE_S = 300
SETUP = "benchmarks/peers/duckdb/setup"
SCAN = ("scan", "--only", "duckdb", "--rows", "1000")
SCAN_FIGURES = 18  # the ratio and both times, for three numbers of queries, with one thread and two
ANALYTICS = ("analytics", "--orders", "500")
# Figures of suite analytics with and without DuckDB.
COMPARED = {f"analytics.{name}" for name in ("q6_vs_duckdb", "q1_vs_duckdb", "batch64_vs_duckdb", "duckdb_q6_ms",
                                             "duckdb_q1_ms", "duckdb_batch64_ms")}
ALONE = {f"analytics.{name}" for name in ("loam_q6_ms", "loam_q1_ms", "loam_batch64_ms", "expression_over_field",
                                          "sum_expression_ms", "sum_field_ms")}
BENCH = ""

# Stands in for statements.py. Every value in its replies is 1, which is wrong.
WRONG = """
import json, sys
print(json.dumps({"duckdb": "0"}), flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if "load" in command:
        answer = {"rows": len(open(command["load"]).readlines())}
    else:
        answer = {"seconds": 1.0, "rows": [[["1"]] for _ in command["statements"]]}
    print(json.dumps(answer), flush=True)
"""


class StandIns(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def python(self, text):
        """Creates an environment whose Python is this program."""
        path = self.folder / "bin/python"
        path.parent.mkdir()
        path.write_text(f"#!{sys.executable}\n{text}")
        path.chmod(0o755)

    def bench(self, *arguments):
        figures = self.folder / "figures"
        command = [BENCH, *arguments, "--quick", "--duckdb", str(self.folder), "--json", str(figures)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
        rows = figures.read_text().splitlines() if figures.exists() else []
        return result, [json.loads(row) for row in rows]

    def expect_unmeasured(self, why):
        result, rows = self.bench(*SCAN)
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(len(rows), SCAN_FIGURES, [row["figure"] for row in rows])
        for row in rows:
            self.assertIsNone(row["value"], row)
            self.assertIn(why, row["reason"])
            self.assertIn(SETUP, row["reason"])

    def test_missing_environment_leaves_figures_unmeasured(self):
        self.expect_unmeasured("not installed")

    def test_environment_without_duckdb_leaves_figures_unmeasured(self):
        self.python("print('{\"error\": \"no module of that name\"}')")
        self.expect_unmeasured("no module of that name")

    def test_python_that_exits_at_once_leaves_figures_unmeasured(self):
        self.python("")
        self.expect_unmeasured("has ended")

    def test_python_that_prints_no_json_leaves_figures_unmeasured(self):
        self.python("print('hello')")
        self.expect_unmeasured("hello")

    def test_analytics_measures_the_figures_of_loam_without_duckdb(self):
        result, rows = self.bench(*ANALYTICS)
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual({row["figure"] for row in rows if row["value"] is not None}, ALONE)
        unmeasured = [row for row in rows if row["value"] is None]
        self.assertEqual({row["figure"] for row in unmeasured}, COMPARED)
        for row in unmeasured:
            self.assertIn(SETUP, row["reason"])

    def test_wrong_answers_end_the_program(self):
        self.python(WRONG)
        for arguments, message in ((SCAN, "a wrong sum of DuckDB"), (ANALYTICS, "a wrong answer of DuckDB")):
            result, rows = self.bench(*arguments)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(message, result.stderr)
            self.assertFalse(rows)

    def test_an_error_ends_the_program(self):
        self.python(WRONG.replace("answer = {\"seconds\"", "answer = {\"error\": \"out of memory\", \"seconds\""))
        for arguments in (SCAN, ANALYTICS):
            result, _ = self.bench(*arguments)
            self.assertEqual(result.returncode, 1)
            self.assertIn("out of memory", result.stderr)


if __name__ == "__main__":
    BENCH = sys.argv.pop(1)
    unittest.main(verbosity=2)
