"""Tests `loam` when its output cannot be written: every subcommand reports this and does not end with exit code 0."""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import unittest

import cluster
from cluster import ClusterTest, PROGRAM, SAMPLE, loam

FULL = "the standard output cannot be written: No space left on device (ENOSPC)"
CLOSED = "the standard output cannot be written: Bad file descriptor (EBADF)"
GONE = "the standard output cannot be written: Broken pipe (EPIPE)"


def subcommands():
    """Returns the paths of all subcommands. They come from the completion script, which is generated from the
    parser."""
    script = loam("completion", "bash").stdout
    return [tuple(path.split()) for path in re.findall(r'^    "((?: [\w-]+)+)"\) words=', script, re.MULTILINE)]


def leaves():
    paths = subcommands()
    return {path for path in paths if not any(other[:len(path)] == path and other != path for other in paths)}


def run_into(path, *arguments, stream="stdout", env=None):
    """Runs `loam` with one of its streams redirected to a file."""
    with open(path, "wb") as file:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: file}
        return subprocess.run([PROGRAM, *map(str, arguments)], stdin=subprocess.DEVNULL, text=True, env=env,
                              timeout=cluster.DEADLINE_S, check=False, **streams)


def run_closed(fd, *arguments, env=None):
    """Runs `loam` with one of its descriptors closed."""
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, env=env,
                          preexec_fn=lambda: os.close(fd), timeout=cluster.DEADLINE_S, check=False)


# Subcommands that run with a `loam dev`, and their arguments. TABLE is a table with records, and INDEX an index of it.
COMMANDS = {
    ("dev",): ["--free-ports", "--memory", "64MiB", "--page-size", "1MiB"],
    ("table", "create"): ["TABLE", "--field", "a:int32", "--field", "t:text?"],
    ("table", "list"): [],
    ("table", "describe"): ["TABLE"],
    ("table", "rename"): ["RENAMED", "RENAMED_2"],
    ("table", "add-field"): ["TABLE_2", "added:int32?"],
    ("table", "drop"): ["DROPPED", "--yes"],
    ("index", "create"): ["INDEX", "--table", "TABLE", "--fields", "a"],
    ("index", "list"): [],
    ("index", "drop"): ["DROPPED_INDEX", "--yes"],
    ("put",): ["TABLE", "1", "a=1"],
    ("get",): ["TABLE", "1"],
    ("delete",): ["TABLE", "2"],
    ("import",): ["IMPORTED", "FILE"],
    ("scan",): ["TABLE"],
    ("status",): [],
    ("stats",): [],
    ("slow",): [],
    ("transactions",): [],
    ("node", "list"): [],
    ("ping",): ["--count", "1"],
    ("doctor",): ["--memory", "64MiB"],
    ("demo",): ["--calm", "--duration", "1", "--accounts", "100", "--memory", "128MiB"],
    ("completion",): ["bash"],
    ("version",): [],
}
# Subcommands that other tests of this file run.
OTHERS = {("cluster", "up"), ("cluster", "down"), ("cluster", "status"), ("cluster", "start"), ("cluster", "stop"),
          ("node", "accept-loss"), ("log", "inspect"), ("sessions",), ("session", "end"), ("query", "cancel"), ("queries",),
          ("support-bundle",)}


class OutputLossTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.create("a:int32", "t:text?")
        for key in (1, 2):
            self.good("put", self.table, key, "a=1", "t=x")
        self.env = {**os.environ, "LOAM_CONNECT": self.dev.address, "LOAM_DATA": str(SAMPLE.parent)}

    def prepared(self, words, number):
        """Replaces the capital words by names of this run, and creates the tables and indexes that the command drops or
        renames. Returns the arguments."""
        if "DROPPED" in words:
            self.good("table", "create", f"dropped{number}", "--field", "a:int32")
        if "RENAMED" in words:
            self.good("table", "create", f"renamed{number}", "--field", "a:int32")
        if "TABLE_2" in words:
            self.good("table", "create", f"table{number}", "--field", "a:int32")
        if "DROPPED_INDEX" in words:
            self.good("index", "create", f"dropped_index{number}", "--table", self.table, "--fields", "a")
        names = {"TABLE": self.table, "DROPPED": f"dropped{number}", "DROPPED_INDEX": f"dropped_index{number}",
                 "RENAMED": f"renamed{number}", "RENAMED_2": f"renamed{number}b", "TABLE_2": f"table{number}",
                 "INDEX": f"index{number}", "IMPORTED": f"imported{number}",
                 "FILE": self.write("a.csv", "a\n1\n")}
        return [names.get(word, word) for word in words]

    def lost(self, result, says, as_json):
        self.assertEqual(result.returncode, 1, f"{result.args}: {result.stderr}")
        lines = result.stderr.splitlines()
        message = json.loads(lines[-1])["error"]["message"] if as_json else lines[-1].removeprefix("loam: ")
        self.assertEqual(message, says, result.args)

    def test_every_subcommand_reports_lost_output(self):
        self.assertEqual(set(COMMANDS) | OTHERS, leaves())
        number = 0
        for path, words in COMMANDS.items():
            offered = loam(*path, "--help").stdout
            for option in ["", "--json", "--csv"]:
                if option not in offered or (path == ("demo",) and option):
                    continue
                for run, says in [(lambda *a: run_into("/dev/full", *a, env=self.env), FULL),
                                  (lambda *a: run_closed(1, *a, env=self.env), CLOSED)]:
                    if path == ("demo",) and says == CLOSED:
                        continue
                    number += 1
                    if path == ("delete",):
                        self.good("put", self.table, 2, "a=1")
                    arguments = [*path, *self.prepared(words, number), *([option] if option else [])]
                    self.lost(run(*arguments), says, option == "--json")
        self.assertEqual(self.count(), 1, "no output was sent to a socket of the cluster")

    @contextlib.contextmanager
    def open_session(self):
        """Yields the id of an open session: that of a scan whose output stays unread. CSV, because it is printed as it
        arrives; a table is printed at the end of the query."""
        before = {session["id"] for session in self.objects("sessions")}
        with subprocess.Popen([PROGRAM, "scan", self.table, "--csv"], stdout=subprocess.PIPE, env=self.env) as scan:
            try:
                found = []
                while not found:
                    found = [session["id"] for session in self.objects("sessions") if session["id"] not in before]
                yield found[0]
            finally:
                scan.kill()

    def test_commands_about_sessions_report_lost_output(self):
        self.good("put", self.table, 3, "a=1", f"t={'x' * 100_000}")  # more than a pipe holds
        for run, says in [(lambda *a: run_into("/dev/full", *a, env=self.env), FULL),
                          (lambda *a: run_closed(1, *a, env=self.env), CLOSED)]:
            for option in ["", "--json"]:
                ended = None
                while ended is None or "is not open" in ended.stderr:  # the lease of the scan ran out before
                    with self.open_session() as session:
                        self.lost(run("sessions", *([option] if option else [])), says, option == "--json")
                        ended = run("session", "end", session, *([option] if option else []))
                self.lost(ended, says, option == "--json")

    def test_the_end_of_a_query_reports_lost_output(self):
        rows = "key,a,t\n" + "".join(f"{key},1,{'x' * 100_000}\n" for key in range(3, 300))  # more than the credits of a scan
        self.good("import", self.table, self.write("rows.csv", rows), "--key", "key")
        for run, says in [(lambda *a: run_into("/dev/full", *a, env=self.env), FULL),
                          (lambda *a: run_closed(1, *a, env=self.env), CLOSED)]:
            for option in ["", "--json"]:
                ended = None
                while ended is None or "no storage node runs" in ended.stderr:  # the lease of the scan ran out before
                    with self.open_session() as session:
                        running = [query["id"] for query in self.objects("queries") if query["session"] == session]
                        if running:
                            listed = run("queries", *([option] if option else []))
                            if listed.returncode == 0:
                                continue  # the query has ended meanwhile
                            self.lost(listed, says, option == "--json")
                            ended = run("query", "cancel", running[0], *([option] if option else []))
                self.lost(ended, says, option == "--json")

    def test_every_help_text_reports_lost_output(self):
        for path in [(), *subcommands(), ("demo-client",)]:
            self.lost(run_into("/dev/full", *path, "--help"), FULL, False)

    def test_lost_standard_error_is_a_failure(self):
        for words in (["scan", self.table, "--stats"], ["get", self.table, "99"]):
            self.assertNotEqual(run_into("/dev/full", *words, stream="stderr", env=self.env).returncode, 0, words)
            self.assertNotEqual(run_closed(2, *words, env=self.env).returncode, 0, words)

    def test_closed_standard_error_is_harmless_without_messages(self):
        result = run_closed(2, "scan", self.table, "--csv", env=self.env)
        self.assertEqual((result.returncode, result.stdout), (0, "a,t\n1,x\n1,x\n"))

    def test_closed_standard_input_stops_only_its_readers(self):
        result = run_closed(0, "import", self.table, "-", env=self.env)
        self.assertEqual(result.returncode, 4, result.stderr)
        self.good("scan", self.table)
        result = run_closed(0, "table", "drop", self.table, env=self.env)
        self.assertEqual(result.returncode, 2, result.stderr)

    def test_closed_pipe_ends_a_long_output(self):
        reading, writing = os.pipe()
        os.close(reading)
        for words in (["stats", "--watch", "0.1"], ["stats", "--watch", "0.1", "--json"], ["scan", self.table]):
            result = subprocess.run([PROGRAM, *words], stdout=writing, stderr=subprocess.PIPE, text=True, env=self.env,
                                    restore_signals=False, timeout=cluster.DEADLINE_S, check=False,
                                    preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN))
            self.lost(result, GONE, "--json" in words)
        os.close(writing)


class ClusterOutputTest(ClusterTest):
    @classmethod
    def setUpClass(cls):
        pass  # the test starts a cluster of processes instead of `loam dev`

    @classmethod
    def tearDownClass(cls):
        pass

    def test_cluster_commands_report_lost_output(self):
        env = {**os.environ, "LOAM_DIR": self.directory.name}
        self.addCleanup(lambda: subprocess.run([PROGRAM, "cluster", "down"], env=env, capture_output=True,
                                               timeout=cluster.DEADLINE_S, check=False))

        def lost(*words):
            result = run_into("/dev/full", *words, env=env)
            self.assertEqual((result.returncode, result.stderr), (1, f"loam: {FULL}\n"), words)

        lost("cluster", "up", "--nodes", 1, "--free-ports", "--memory", "64MiB", "--node-option", "page=2MiB")
        lost("cluster", "status")
        status = subprocess.run([PROGRAM, "cluster", "status", "--json"], env=env, capture_output=True, text=True,
                                check=True).stdout.splitlines()
        env["LOAM_CONNECT"] = json.loads(status[0])["address"]
        lost("log", "inspect", os.path.join(self.directory.name, "commit-manager.data"))
        lost("cluster", "stop", "node-1", "--kill")
        lost("cluster", "start", "node-1")
        lost("node", "accept-loss", 1, "--yes")
        lost("cluster", "down")


class DescriptorLimitTest(unittest.TestCase):
    def test_low_limit_on_open_files_is_reported(self):
        for words, code in ((["dev", "--free-ports", "--memory", "64MiB"], 7), (["status", "--admin", "127.0.0.1:1"], 1)):
            result = subprocess.run(
                [PROGRAM, *words], capture_output=True, text=True, timeout=cluster.DEADLINE_S, check=False,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8)))
            self.assertEqual(result.returncode, code, result.stderr)
            self.assertIn("may open only 8 files", result.stderr)
            self.assertIn("ulimit -n", result.stderr)


if __name__ == "__main__":
    cluster.main()
