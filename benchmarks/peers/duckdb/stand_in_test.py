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
FIGURES = 18  # the ratio and both times, for three numbers of queries, with one thread and two
BENCH = ""

# Stands in for sums.py. Every sum in its replies is 1, which is wrong.
WRONG = """
import json, os, sys
print(json.dumps({"duckdb": "0"}), flush=True)
for line in sys.stdin:
    command = json.loads(line)
    if "load" in command:
        answer = {"rows": os.path.getsize(command["load"] + "/amount") // 8}
    else:
        answer = {"seconds": 1.0, "sums": [1 for _ in command["ranges"]]}
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

    def bench(self):
        figures = self.folder / "figures"
        command = [BENCH, "scan", "--quick", "--only", "duckdb", "--rows", "1000", "--duckdb", str(self.folder), "--json",
                   str(figures)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
        rows = figures.read_text().splitlines() if figures.exists() else []
        return result, [json.loads(row) for row in rows]

    def expect_unmeasured(self, why):
        result, rows = self.bench()
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(len(rows), FIGURES, [row["figure"] for row in rows])
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

    def test_wrong_sums_end_the_program(self):
        self.python(WRONG)
        result, rows = self.bench()
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("a wrong sum of DuckDB", result.stderr)
        self.assertFalse(rows)

    def test_an_error_ends_the_program(self):
        self.python(WRONG.replace("answer = {\"seconds\"", "answer = {\"error\": \"out of memory\", \"seconds\""))
        result, _ = self.bench()
        self.assertEqual(result.returncode, 1)
        self.assertIn("out of memory", result.stderr)


if __name__ == "__main__":
    BENCH = sys.argv.pop(1)
    unittest.main(verbosity=2)
