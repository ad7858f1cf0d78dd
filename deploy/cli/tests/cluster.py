"""Starts `loam dev` on free ports, and runs `loam` against it."""

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else "build/dev/bin/loam"
SAMPLE = pathlib.Path(__file__).resolve().parent.parent / "data" / "flights-2013-01.csv.gz"
DEADLINE_S = 300


def loam(*arguments, connect=None, stdin=None, env=None, timeout=DEADLINE_S):
    """Runs `loam` once. Returns the completed process."""
    environment = {**os.environ, **(env or {})}
    for name in ("LOAM_CONNECT", "LOAM_ADMIN", "LOAM_DIR"):
        environment.pop(name, None)
    if connect is not None:
        environment["LOAM_CONNECT"] = connect
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, input=stdin,
                          env=environment, timeout=timeout, check=False)


class Dev:
    """A cluster in one process (`loam dev`). It ends with the `with` block."""

    def __init__(self, *arguments, memory="512MiB", page_size="1MiB", preexec=None):
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.process = subprocess.Popen(
            [PROGRAM, "dev", "--free-ports", "--json", "--memory", memory, "--page-size", page_size, *arguments],
            stdout=subprocess.PIPE, stderr=self.errors, text=True, preexec_fn=preexec)
        ready, _, _ = select.select([self.process.stdout], [], [], DEADLINE_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"loam dev did not start: {self.error_text()}")
        self.config = json.loads(line)
        self.address = self.config["address"]

    def error_text(self):
        self.errors.seek(0)
        return self.errors.read()

    def stop(self):
        """Ends the cluster by SIGINT. Returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("loam dev did not end after SIGINT") from None
        finally:
            self.process.stdout.close()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()
        self.errors.close()


class ClusterTest(unittest.TestCase):
    """Tests that share one cluster. Each test has a table of its own, named after the test."""

    @classmethod
    def setUpClass(cls):
        cls.dev = Dev()

    @classmethod
    def tearDownClass(cls):
        code = cls.dev.stop()
        text = cls.dev.error_text()
        cls.dev.errors.close()
        assert code == 0, f"loam dev ended with {code}: {text}"

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.table = self.id().rsplit(".", maxsplit=1)[-1]

    def write(self, name, text):
        path = pathlib.Path(self.directory.name) / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    def loam(self, *arguments, **options):
        return loam(*arguments, connect=self.dev.address, **options)

    def good(self, *arguments, **options):
        """Runs a command that must succeed. Returns its standard output."""
        result = self.loam(*arguments, **options)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stderr}")
        return result.stdout

    def objects(self, *arguments, **options):
        """Runs a command with --json. Returns the objects that it prints, one a line."""
        return [json.loads(line) for line in self.good(*arguments, "--json", **options).splitlines()]

    def bad(self, code, *arguments, says="", **options):
        """Runs a command that must fail with this exit code and a message that contains `says`. Returns the result."""
        result = self.loam(*arguments, **options)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stdout}{result.stderr}")
        self.assertIn(says, result.stderr)
        self.assertNotIn("Traceback", result.stderr)
        return result

    def create(self, *fields, kind="transactional"):
        options = [option for field in fields for option in ("--field", field)]
        self.good("table", "create", self.table, *options, "--kind", kind)

    def count(self, table=None):
        return self.objects("scan", table or self.table, "--aggregate", "count(*) as n")[0]["n"]


@contextlib.contextmanager
def refusing_port():
    """Yields a port of loopback at which connections are refused. A socket is bound to it and does not listen, so that
    no other program gets the port meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def wait_until(condition, what):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {DEADLINE_S} s: {what}")
        time.sleep(0.01)


def main():
    """Runs the tests. Arguments: paths of programs, of which the first is `loam`; then names of tests."""
    unittest.main(argv=[sys.argv[0], *(name for name in sys.argv[2:] if "/" not in name)])
