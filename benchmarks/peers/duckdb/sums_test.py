"""Tests that sums.py replies to its commands as it documents, and that loam-bench gets all figures from it. Argument:
loam-bench.

The tests are skipped if benchmarks/peers/duckdb/setup has not run."""

import array
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77
DEADLINE_S = 300
PROGRAM = pathlib.Path(__file__).resolve().parent / "sums.py"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
PYTHON = CACHE / "loam/duckdb/bin/python"
COLUMNS = {"order": "q", "item": "q", "delivered": "q", "amount": "q", "line": "i", "quantity": "i", "supplier": "i"}
CORES = sorted(os.sched_getaffinity(0))
BENCH = ""


def write_columns(folder, rows, shorter=()):
    """Writes one file for each column. `delivered` is 0, 1, 2, …, and `amount` is ten times as much."""
    for name, code in COLUMNS.items():
        values = [10 * i if name == "amount" else i for i in range(rows - (name in shorter))]
        (pathlib.Path(folder) / name).write_bytes(array.array(code, values).tobytes())


class Sums(unittest.TestCase):
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

    def load(self, rows):
        with tempfile.TemporaryDirectory() as folder:
            write_columns(folder, rows)
            self.assertEqual(self.request({"load": folder}), {"rows": rows})

    def test_first_line_is_the_version(self):
        self.assertRegex(self.first["duckdb"], r"^\d+\.\d+")

    def test_both_forms_return_the_sums(self):
        self.load(1000)
        ranges = [[0, 1000], [10, 12], [500, 500], [999, 5000], [-5, 1]]
        for form in ("separate", "filter"):
            for threads in range(1, min(len(CORES), 2) + 1):
                command = {"cores": CORES[:threads], "threads": threads, "field": "delivered", "ranges": ranges,
                           "form": form}
                answer = self.request(command)
                self.assertEqual(answer["sums"], [4_995_000, 210, 0, 9990, 0], command)
                self.assertGreater(answer["seconds"], 0)
                tasks = os.listdir(f"/proc/{self.process.pid}/task")
                for task in tasks:
                    self.assertEqual(os.sched_getaffinity(int(task)), set(CORES[:threads]), command)

    def test_time_limit_ends_one_command_only(self):
        self.load(200_000)
        for form in ("separate", "filter"):
            command = {"cores": CORES[:1], "threads": 1, "field": "delivered", "ranges": [[0, 100_000]] * 256,
                       "form": form}
            answer = self.request(command | {"limit_seconds": 0.001})
            self.assertTrue(answer["gave_up"])
            self.assertNotIn("sums", answer)
            self.assertEqual(self.request(command | {"ranges": [[1, 3]]})["sums"], [30])

    def test_wrong_commands_get_error_replies(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("FileNotFoundError", self.request({"load": folder})["error"])
            write_columns(folder, 5, shorter=("item",))
            self.assertIn("different lengths", self.request({"load": folder})["error"])
        self.load(3)
        good = {"cores": CORES[:1], "threads": 1, "field": "delivered", "ranges": [[0, 2]], "form": "separate"}
        for wrong in ({"form": "guess"}, {"field": "guess"}, {"cores": []}, {"threads": 0}, {"ranges": [["a", 1]]},
                      {"ranges": 1}):
            self.assertIn("error", self.request(good | wrong), wrong)
        for text in ("no JSON", "[]", "{}"):
            self.assertIn("error", self.request(text), text)
        self.assertEqual(self.request(good)["sums"], [10])

    def test_benchmark_reports_every_figure(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "figures"
            command = [BENCH, "scan", "--quick", "--only", "duckdb", "--rows", "20000", "--json", str(path)]
            result = subprocess.run(command, env=os.environ | {"TMPDIR": folder}, capture_output=True, text=True,
                                    timeout=DEADLINE_S)
            self.assertEqual(result.returncode, 0, result)
            self.assertEqual(os.listdir(folder), ["figures"], "the files of the columns are removed")
            rows = {row["figure"]: row for row in map(json.loads, path.read_text().splitlines())}
        for threads in ("", "_2threads"):
            for queries in ("q1", "q64", "q256"):
                for name in (f"vs_duckdb_{queries}{threads}", f"duckdb_{queries}{threads}_ms", f"loam_{queries}{threads}_ms"):
                    row = rows.pop(f"scan.{name}")
                    if threads and len(CORES) < 2:
                        self.assertEqual(row["reason"], "needs two cores")
                        continue
                    self.assertGreater(row["value"], 0, row)
                    self.assertEqual(row["options"]["duckdb"], self.first["duckdb"])
                    self.assertIn(row["options"]["duckdb_form"], ("separate", "filter"))
        self.assertFalse(rows)


if __name__ == "__main__":
    BENCH = sys.argv.pop(1)
    if not PYTHON.exists() or subprocess.run([PYTHON, PROGRAM, "--check"]).returncode != 0:
        print("SKIPPED: DuckDB is not installed; benchmarks/peers/duckdb/setup installs it")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
