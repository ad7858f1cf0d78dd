"""Tests that statements.py replies to its commands as it documents, and that loam-bench gets all figures from it.
Argument: loam-bench.

The tests are skipped if benchmarks/peers/duckdb/setup has not run."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
DEADLINE_S = 300
PROGRAM = pathlib.Path(__file__).resolve().parent / "statements.py"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
PYTHON = CACHE / "loam/duckdb/bin/python"
COLUMNS = [["place", "BIGINT"], ["price", "DECIMAL(15,2)"], ["day", "DATE"], ["flag", "VARCHAR"]]
CORES = sorted(os.sched_getaffinity(0))
BENCH = ""


def lines_of(rows):
    """Rows of COLUMNS: `place` is 0, 1, 2, …, and `price` a hundredth of it."""
    return "".join(f"{i}|{i // 100}.{i % 100:02}|1994-02-{1 + i % 28:02}|{'AB'[i % 2]}\n" for i in range(rows))


class Statements(unittest.TestCase):
    def setUp(self):
        self.process = subprocess.Popen([PYTHON, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        self.first = json.loads(self.process.stdout.readline())

    def end(self):
        self.process.stdin.close()
        self.assertEqual(self.process.wait(DEADLINE_S), 0)
        self.process.stdout.close()

    def request(self, command):
        text = command if isinstance(command, str) else json.dumps(command)
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def load(self, text, columns=COLUMNS, table="lines"):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rows"
            path.write_text(text)
            return self.request({"load": str(path), "table": table, "columns": columns})

    def execute(self, *statements, **more):
        return self.request({"cores": CORES[:1], "threads": 1, "statements": statements} | more)

    def test_first_line_is_the_version(self):
        self.assertRegex(self.first["duckdb"], r"^\d+\.\d+")

    def test_statements_return_their_rows_as_texts(self):
        self.assertEqual(self.load(lines_of(1000)), {"rows": 1000})
        answer = self.execute("SELECT * FROM lines WHERE place IN (0, 29)",
                              "SELECT flag, sum(price), sum(price * 0.000), count(*) FROM lines GROUP BY 1 ORDER BY 1",
                              "SELECT avg(price), max(day), sum(place) FILTER (WHERE place < 0) FROM lines",
                              "SELECT place FROM lines WHERE place < 0")
        self.assertGreater(answer["seconds"], 0)
        self.assertEqual(answer["rows"], [
            [["0", "0.00", "1994-02-01", "A"], ["29", "0.29", "1994-02-02", "B"]],
            [["A", "2495.00", "0.00000", "500"], ["B", "2500.00", "0.00000", "500"]],
            [["4.995", "1994-02-28", None]],
            []])

    def test_statements_run_on_the_named_cores(self):
        for threads in range(1, min(len(CORES), 2) + 1):
            self.assertEqual(self.execute("SELECT 1", cores=CORES[:threads], threads=threads)["rows"], [[["1"]]])
            for task in os.listdir(f"/proc/{self.process.pid}/task"):
                self.assertEqual(os.sched_getaffinity(int(task)), set(CORES[:threads]))

    def test_a_load_replaces_the_table_of_its_name_only(self):
        columns = [["it's", "BIGINT"], ['a "text"', "VARCHAR"]]
        self.load("1|one, \"two\" 'three' \\\n", columns, 'my "table"')
        self.load("7|x\n8|y\n", columns)
        self.load("9|z\n", columns)
        answer = self.execute('SELECT * FROM "my ""table"""', 'SELECT "it\'s" FROM lines')
        self.assertEqual(answer["rows"], [[["1", "one, \"two\" 'three' \\"]], [["9"]]])

    def test_time_limit_ends_one_command_only(self):
        self.load(lines_of(200_000))
        slow = ["SELECT sum(price) FROM lines WHERE place < 100000"] * 256
        for statements in (slow, ["SELECT count(*) FROM lines a, lines b WHERE a.price < b.price"]):
            answer = self.execute(*statements, limit_seconds=0.001)
            self.assertTrue(answer["gave_up"])
            self.assertNotIn("rows", answer)
            self.assertEqual(self.execute("SELECT 1", limit_seconds=60)["rows"], [[["1"]]])

    def test_wrong_commands_get_error_replies(self):
        nowhere = self.request({"load": "/nowhere/rows", "table": "lines", "columns": COLUMNS})
        self.assertIn("IO Error", nowhere["error"])
        self.assertIn("Number of Columns", self.load("1|1.00|1994-01-01|A\n2|1.00\n")["error"])
        for text, columns in (("1\n", [["place", "guess"]]), ("x\n", [["place", "BIGINT"]]), ("1\n", [["place"]]),
                              ("1\n", 1)):
            self.assertIn("error", self.load(text, columns), columns)
        for wrong in ({"statements": ["SELECT guess"]}, {"statements": [1]}, {"statements": "SELECT 1"}, {"cores": []},
                      {"threads": 0}):
            self.assertIn("error", self.execute("SELECT 1", **wrong), wrong)
        for text in ("no JSON", "[]", "{}"):
            self.assertIn("error", self.request(text), text)
        self.assertEqual(self.execute("SELECT 1")["rows"], [[["1"]]])

    def figures(self, *arguments):
        """The figures of loam-bench by their names."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "figures"
            result = subprocess.run([BENCH, *arguments, "--quick", "--json", str(path)],
                                    env=os.environ | {"TMPDIR": folder}, capture_output=True, text=True,
                                    timeout=DEADLINE_S)
            self.assertEqual(result.returncode, 0, result)
            self.assertEqual(os.listdir(folder), ["figures"], "the files of the rows are removed")
            return {row["figure"]: row for row in map(json.loads, path.read_text().splitlines())}

    def test_scans_report_every_figure(self):
        rows = self.figures("scan", "--only", "duckdb", "--rows", "20000")
        for threads in ("", "_2threads"):
            for queries in ("q1", "q64", "q256"):
                for name in (f"vs_duckdb_{queries}{threads}", f"duckdb_{queries}{threads}_ms",
                             f"loam_{queries}{threads}_ms"):
                    row = rows.pop(f"scan.{name}")
                    if threads and len(CORES) < 2:
                        self.assertEqual(row["reason"], "needs two cores")
                        continue
                    self.assertGreater(row["value"], 0, row)
                    self.assertEqual(row["options"]["duckdb"], self.first["duckdb"])
                    self.assertIn(row["options"]["duckdb_form"], ("separate", "filter"))
        self.assertFalse(rows)

    def test_analytics_reports_every_figure(self):
        rows = self.figures("analytics", "--orders", "5000")
        for queries in ("q6", "q1", "batch64"):
            for name in (f"{queries}_vs_duckdb", f"duckdb_{queries}_ms", f"loam_{queries}_ms"):
                row = rows.pop(f"analytics.{name}")
                self.assertGreater(row["value"], 0, row)
                self.assertEqual(row["options"]["duckdb"], self.first["duckdb"])
        for name in ("expression_over_field", "sum_expression_ms", "sum_field_ms"):
            self.assertGreater(rows.pop(f"analytics.{name}")["value"], 0, name)
        self.assertFalse(rows)


if __name__ == "__main__":
    BENCH = sys.argv.pop(1)
    if not PYTHON.exists() or subprocess.run([PYTHON, PROGRAM, "--check"]).returncode != 0:
        print("SKIPPED: DuckDB is not installed; benchmarks/peers/duckdb/setup installs it")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
