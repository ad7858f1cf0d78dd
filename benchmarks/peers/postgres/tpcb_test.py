"""Tests that tpcb.py replies to its commands as it documents, and that loam-bench gets both figures from it. Other
tests give loam-bench a program with wrong replies, or none. Argument: loam-bench.

Tests that need PostgreSQL are skipped if scripts/setup has not run."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
DEADLINE_S = 300
PROGRAM = pathlib.Path(__file__).resolve().parent / "tpcb.py"
SETUP = "scripts/setup"
RATIO, THEIRS, OURS = "tx.vs_postgres_tpcb", "tx.tpcb_per_s_postgres", "tx.tpcb_per_s"
INSTALLED = subprocess.run([sys.executable, PROGRAM, "--check"]).returncode == 0
BENCH = ""

# Stands in for tpcb.py, with the same replies.
STAND_IN = """
import json, sys
print(json.dumps({"postgres": "0"}), flush=True)
for line in sys.stdin:
    command = json.loads(line)
    answer = {"rows": 2000} if "branches" in command else {"per_second": 1.0, "latency_ms": 1.0, "transactions": 1}
    print(json.dumps(answer), flush=True)
"""


class Measure(unittest.TestCase):
    """A busy machine, on which no transaction ends in the first runs of pgbench."""

    def measure(self, results):
        spec = importlib.util.spec_from_file_location("tpcb", PROGRAM)
        tpcb = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(tpcb)
        server = tpcb.Server.__new__(tpcb.Server)  # without a real server
        server.transactions = 0
        server.check = lambda: None
        server.sql = lambda text: ""
        self.seconds = []

        def pgbench(clients, seconds, seed):
            self.seconds.append(seconds)
            done = results.pop(0)
            rate = "latency average = 1.5 ms\ntps = 3.5 (without initial connection time)" if done else ""
            return done, rate

        server.pgbench = pgbench
        return server.measure({"clients": 1, "seconds": 2, "seed": 1})

    def test_a_run_without_a_transaction_is_repeated_for_longer(self):
        self.assertEqual(self.measure([0, 0, 5]), {"per_second": 3.5, "transactions": 5, "latency_ms": 1.5})
        self.assertEqual(self.seconds, [2, 4, 8])

    def test_no_transaction_at_all_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "no transaction of PostgreSQL ended within 32 s"):
            self.measure([0] * 5)


class Bench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def bench(self, *options):
        figures = self.folder / "figures"
        command = [BENCH, "tx", "--quick", "--only", "tpcb", "--branches", "20", "--accounts-of-a-branch", "100",
                   "--tpcb-fibers", "64", "--json", str(figures), *options]
        result = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
        rows = figures.read_text().splitlines() if figures.exists() else []
        return result, {row["figure"]: row for row in map(json.loads, rows)}

    def stand_in(self, text):
        path = self.folder / "program.py"
        path.write_text(text)
        return self.bench("--postgres", str(path))

    def test_bench_reports_the_figures_of_a_stand_in(self):
        result, rows = self.stand_in(STAND_IN)
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(rows[THEIRS]["value"], 1)
        self.assertGreater(rows[OURS]["value"], 1)
        self.assertGreater(rows[RATIO]["value"], 1)

    def test_bench_without_postgres_leaves_figures_unmeasured(self):
        result, rows = self.stand_in("print('{\"error\": \"no server\"}')")
        self.assertEqual(result.returncode, 0, result)
        self.assertGreater(rows[OURS]["value"], 0)
        for figure in (THEIRS, RATIO):
            self.assertIsNone(rows[figure]["value"])
            self.assertIn("no server", rows[figure]["reason"])
            self.assertIn(SETUP, rows[figure]["reason"])

    def test_an_error_ends_the_program(self):
        result, _ = self.stand_in(STAND_IN.replace("{\"per_second\"", "{\"error\": \"wrong sums\", \"per_second\""))
        self.assertEqual(result.returncode, 1)
        self.assertIn("wrong sums", result.stderr)

    @unittest.skipUnless(INSTALLED, f"SKIPPED: PostgreSQL is not installed; {SETUP} installs it")
    def test_bench_reports_the_figures_of_postgres(self):
        result, rows = self.bench()
        self.assertEqual(result.returncode, 0, result)
        for figure in (OURS, THEIRS, RATIO):
            self.assertGreater(rows[figure]["value"], 0)
        self.assertRegex(rows[RATIO]["options"]["postgres"], r"^\d+\.\d+")
        self.assertIn(rows[RATIO]["options"]["postgres_clients"], (4, 16))


@unittest.skipUnless(INSTALLED, f"SKIPPED: PostgreSQL is not installed; {SETUP} installs it")
class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        self.folder = pathlib.Path(folder.name)
        self.process = subprocess.Popen([sys.executable, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=os.environ | {"TMPDIR": folder.name})
        self.addCleanup(self.end)
        self.first = json.loads(self.process.stdout.readline())

    def end(self):
        if not self.process.stdin.closed:
            self.process.stdin.close()
        self.assertEqual(self.process.wait(DEADLINE_S), 0)
        self.process.stdout.close()
        self.assertEqual(os.listdir(self.folder), [], "the server's folder is removed")

    def request(self, command):
        self.process.stdin.write((command if isinstance(command, str) else json.dumps(command)) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def server(self):
        """Returns the ids of the processes whose data are in the folder."""
        found = []
        for process in pathlib.Path("/proc").iterdir():
            try:
                if process.name.isdigit() and str(self.folder).encode() in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
            except OSError:
                pass  # it has just ended
        return found

    def test_measures_and_checks_the_sums(self):
        self.assertRegex(self.first["postgres"], r"^\d+\.\d+")
        self.assertEqual(self.request({"branches": 2, "accounts": 50}), {"rows": 100})
        for clients in (1, 3):
            answer = self.request({"clients": clients, "seconds": 1, "seed": 7})
            self.assertGreater(answer["per_second"], 0, answer)
            self.assertGreater(answer["transactions"], 0)
        # A change that pgbench did not make is detected.
        folder = next(self.folder.iterdir())
        subprocess.run(["psql", "-X", "-q", "-h", folder, "-U", "postgres", "-d", "postgres", "-c",
                        "UPDATE tellers SET tbalance = tbalance + 1 WHERE tid = 1"], check=True)
        self.assertIn("the sums are", self.request({"clients": 1, "seconds": 1, "seed": 7})["error"])
        self.assertEqual(self.request({"branches": 1, "accounts": 10}), {"rows": 10}, "the tables are filled again")
        self.assertGreater(self.request({"clients": 1, "seconds": 1, "seed": 7})["transactions"], 0)

    def test_wrong_commands_get_error_replies(self):
        for wrong in ("no JSON", "[]", "{}", {"branches": "x", "accounts": 1}, {"branches": 1, "accounts": 10**12},
                      {"clients": 1, "seconds": 1, "seed": 1}):
            self.assertIn("error", self.request(wrong), wrong)
        self.assertEqual(self.request({"branches": 1, "accounts": 10}), {"rows": 10})
        self.assertIn("error", self.request({"clients": 0, "seconds": 1, "seed": 1}))

    def test_sigterm_ends_program_and_server(self):
        self.assertTrue(self.server())
        self.process.terminate()
        self.end()
        self.assertFalse(self.server())

    def test_server_ends_when_the_program_is_killed(self):
        self.process.kill()
        self.process.wait()
        deadline = time.monotonic() + DEADLINE_S
        while self.server() and time.monotonic() < deadline:
            time.sleep(0.05)  # poll interval
        self.assertFalse(self.server())
        self.process.returncode = 0  # the test killed the program, so its exit code is right, and the folder remains
        for left in self.folder.iterdir():
            subprocess.run(["rm", "-r", left], check=True)


if __name__ == "__main__":
    BENCH = sys.argv.pop(1)
    unittest.main(verbosity=2)
