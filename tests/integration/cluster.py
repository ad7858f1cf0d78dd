"""A cluster of real processes on loopback. Tests start, stop, continue, kill and restart the processes. When a test
fails, the logs are printed.

    class SomeTest(ClusterTest):
        def test_something(self):
            self.cluster.client("a").call("transact add:1=5 add:2=-5")
            self.cluster.manager.kill()

The arguments of the test program are the programs: commit manager, storage node, `loam`, workload
(tests/integration/workload.cc).
"""

import contextlib
import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from history import History  # noqa: E402

BUILD = "build/dev"
PROGRAMS = [os.path.abspath(path) for path in sys.argv[1:5]] if len(sys.argv) > 4 else [
    f"{BUILD}/bin/loam-commit-manager", f"{BUILD}/bin/loam-storage-node", f"{BUILD}/bin/loam",
    f"{BUILD}/tests/integration/loam-workload"]
MANAGER, NODE, LOAM, WORKLOAD = PROGRAMS

DEADLINE_S = 300  # deadline of a wait that takes a moment on an idle machine
# Factor by which leases and runs are longer on a slow machine, for example in an emulated guest.
TIME_SCALE = float(os.environ.get("LOAM_TIME_SCALE", "1"))
LEASE_S = 0.4 * TIME_SCALE
NODE_LEASE_S = LEASE_S
# The address of each server at its first start; tests/rdma uses another network.
LISTEN = os.environ.get("LOAM_LISTEN", "tcp://127.0.0.1:0")
ACCOUNTS, BALANCE = 20, 100
LOG_LINES = 80  # lines of each process's log that are printed when a test fails


def now():
    """Returns the time of the clock that the histories use, in seconds."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def poll(condition, what, deadline=DEADLINE_S):
    """Waits until the condition returns a true value, and returns that value."""
    end = now() + deadline
    while True:
        value = condition()
        if value:
            return value
        if now() > end:
            raise AssertionError(f"not within {deadline} s: {what}")
        time.sleep(0.002)  # poll interval


def die_with_the_test():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Process:
    """One process with its log. A process may be started again under the same name; its log then continues."""

    def __init__(self, name, folder):
        self.name = name
        self.log_path = os.path.join(folder, f"{name}.log")
        self.process = None
        self.log_start = 0  # where the log of the current start begins

    def start(self, arguments, pause=None, **pipes):
        environment = {key: value for key, value in os.environ.items() if key != "LOAM_PAUSE"}
        if pause:
            environment["LOAM_PAUSE"] = pause
        with open(self.log_path, "ab") as log:
            log.write(f"--- {' '.join(map(str, arguments))} LOAM_PAUSE={pause or ''}\n".encode())
            log.flush()
            self.log_start = log.tell()
            pipes.setdefault("stdin", subprocess.DEVNULL)
            pipes.setdefault("stdout", log)
            self.process = subprocess.Popen([str(argument) for argument in arguments], stderr=log, env=environment,
                                            preexec_fn=die_with_the_test, **pipes)
        return self

    @property
    def pid(self):
        return self.process.pid

    def log(self, whole=False):
        with open(self.log_path, "rb") as file:
            file.seek(0 if whole else self.log_start)
            return file.read().decode(errors="replace")

    def running(self):
        return self.process is not None and self.process.poll() is None

    def wait_for_log(self, pattern, deadline=DEADLINE_S):
        def found():
            match = re.search(pattern, self.log())
            if match is None and not self.running():
                raise AssertionError(f"{self.name} ended with {self.process.returncode} before it wrote '{pattern}'")
            return match

        return poll(found, f"{self.name} writes '{pattern}'", deadline)

    def signal(self, number):
        self.process.send_signal(number)

    def signal_main_thread(self, number):
        """Sends the signal to the main thread. A signal to the process may be taken by any thread that does not block
        it, for example by one that starts at that moment."""
        if ctypes.CDLL(None).tgkill(self.pid, self.pid, number) != 0:
            raise AssertionError(f"{self.name} has no main thread")

    def kill(self):
        """Kills the process, even if it is stopped. It is dead when this returns."""
        if self.running():
            self.signal(signal.SIGKILL)
        return self.wait()

    def terminate(self, deadline=DEADLINE_S):
        """Sends SIGTERM; returns the exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(deadline)

    def wait(self, deadline=DEADLINE_S):
        try:
            return self.process.wait(deadline)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} did not end within {deadline} s") from None

    def stopped(self):
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "T"

    def stop(self):
        """Stops the process as by SIGSTOP. It is stopped when this returns."""
        self.signal(signal.SIGSTOP)
        poll(self.stopped, f"{self.name} is stopped")

    def resume(self):
        self.signal(signal.SIGCONT)

    def wait_until_paused(self, deadline=DEADLINE_S):
        """Waits until the process is killed or stopped at the pause point that start() gave it. Returns the time."""
        poll(lambda: not self.running() or self.stopped(), f"{self.name} reaches its pause point", deadline)
        seen = now()
        if "loam: paused at" not in self.log():
            raise AssertionError(f"{self.name} ended or stopped by itself: {self.process.poll()}")
        return seen

    def close(self):
        if self.process is None:
            return
        if self.running():
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class Client(Process):
    """loam-workload: executes commands (console.h) or runs random transactions."""

    def __init__(self, name, folder, address, options=(), connect_timeout_s=10):
        super().__init__(name, folder)
        self.options = options
        self.history_path = os.path.join(folder, f"{name}.jsonl")
        self.address = address
        self.connect_timeout_s = connect_timeout_s
        self.buffer = b""

    def begin(self, mode, *arguments, pause=None):
        self.start([WORKLOAD, "--connect", self.address, "--name", self.name, "--history", self.history_path,
                    "--connect-timeout", self.connect_timeout_s, *self.options, mode, *arguments], pause,
                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.buffer = b""
        return self

    def receive(self, deadline=DEADLINE_S):
        """Waits for the next line of its output, and returns it decoded from JSON."""
        end = now() + deadline
        while b"\n" not in self.buffer:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - now()))
            if not ready:
                raise AssertionError(f"{self.name} did not reply within {deadline} s")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise AssertionError(f"{self.name} ended without a reply")
            self.buffer += more
        line, _, self.buffer = self.buffer.partition(b"\n")
        return json.loads(line)

    def send(self, command):
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

    def call(self, command, deadline=DEADLINE_S):
        self.send(command)
        return self.receive(deadline)

    def call_ok(self, command, deadline=DEADLINE_S):
        """Sends the command. Returns the reply, which must be ok."""
        answer = self.call(command, deadline)
        if not answer["ok"]:
            raise AssertionError(f"{self.name}: {command}: {answer['code']}: {answer['message']}")
        return answer

    def wait_for_attempts(self, count):
        """Waits until `count` more attempts have ended, or the client has ended."""
        def ended():
            with open(self.history_path, encoding="utf-8") as file:
                return sum('"event":"end"' in line for line in file)

        before = ended() if os.path.exists(self.history_path) else 0
        poll(lambda: not self.running() or (os.path.exists(self.history_path) and ended() >= before + count),
             f"{self.name} makes {count} attempts")

    def finish(self, deadline=DEADLINE_S):
        """Closes the client's stdin, which ends it. Returns the exit code."""
        self.process.stdin.close()
        return self.wait(deadline)


class Cluster:
    """A commit manager, storage nodes and clients in one folder. All of them end with the `with` block."""

    def __init__(self, nodes=2, lease_s=LEASE_S, node_lease_s=NODE_LEASE_S, manager_options=(), node_options=(),
                 manager_pause=None, durable=True, client_options=()):
        self.folder = tempfile.mkdtemp(prefix="loam-test-")
        self.manager_options = ["--client-lease", f"{round(lease_s * 1000)}ms",
                                "--node-lease", f"{round(node_lease_s * 1000)}ms", *manager_options]
        if durable:
            self.manager_options += ["--data", os.path.join(self.folder, "manager-data")]
        self.node_options = ["--memory", "64MiB", "--page", "256KiB", "--no-huge-pages", *node_options]
        self.client_options = client_options
        self.node_options_of = {}  # name -> additional options
        self.count = nodes
        self.manager = Process("manager", self.folder)
        self.nodes = [Process(f"node-{i + 1}", self.folder) for i in range(nodes)]
        self.addresses = {}  # name -> data address
        self.clients = {}
        self.manager_pause = manager_pause
        self.node_pause = None  # for the first start of each node

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.close()

    def start(self):
        self.start_manager(self.manager_pause)
        for node in self.nodes:
            self.launch_node(node, self.node_pause)
        for node in self.nodes:
            self.note_address(node)

    @property
    def address(self):
        return self.addresses[self.manager.name]

    @property
    def client_address(self):
        """The commit manager's address for clients."""
        return self.address

    def note_address(self, process):
        match = process.wait_for_log(rf"serving at ({re.escape(LISTEN.rpartition(':')[0])}:\d+)")
        self.addresses[process.name] = match.group(1)

    def start_manager(self, pause=None):
        """Starts the commit manager, and waits until it serves. A restart uses the previous address."""
        self.launch_manager(pause)
        self.note_address(self.manager)

    def launch_manager(self, pause=None):
        listen = self.addresses.get(self.manager.name, LISTEN)
        self.manager.start([MANAGER, "--listen", listen, "--admin", "127.0.0.1:0", "--nodes", self.count,
                            *self.manager_options], pause)

    def launch_node(self, node, pause=None, manager=None):
        listen = self.addresses.get(node.name, LISTEN)
        node.start([NODE, "--listen", listen, "--admin", "127.0.0.1:0", "--manager", manager or self.address,
                    *self.node_options, *self.node_options_of.get(node.name, [])], pause)

    def start_node(self, node, pause=None):
        """Starts the node, and waits until it serves. A restart uses the previous address."""
        self.launch_node(node, pause)
        self.note_address(node)

    def number(self, node):
        """Returns the number by which the commit manager knows the node: the order in which the nodes registered."""
        listed = [json.loads(line) for line in self.loam("node", "list", "--json").splitlines()]
        return next(one["node"] for one in listed if one["address"] == self.addresses[node.name])

    def client(self, name, pause=None, address=None):
        """Starts a client that waits for commands."""
        client = Client(name, self.folder, address or self.client_address, self.client_options)
        self.clients[name] = client
        client.begin("console", pause=pause)
        client.session = client.receive()["session"]
        return client

    def transfers(self, name, seconds, seed=1, fibers=8, keys=ACCOUNTS, pause=None, address=None, first_insert=None):
        """Starts a client that runs random transactions for `seconds`. Afterwards receive() returns its summary."""
        client = self.launch_transfers(name, seconds, seed, fibers, keys, pause, address, first_insert)
        client.session = client.receive()["session"]
        return client

    def launch_transfers(self, name, seconds, seed=1, fibers=8, keys=ACCOUNTS, pause=None, address=None,
                         first_insert=None):
        """Does the same as transfers(), but does not wait for the client's session."""
        client = Client(name, self.folder, address or self.client_address, self.client_options)
        if first_insert is None:
            first_insert = 1_000_000 * (1 + len(self.clients))
        self.clients[name] = client
        client.begin("transfers", "--seconds", round(seconds * TIME_SCALE), "--seed", seed, "--fibers", fibers, "--keys", keys,
                     "--first-insert", first_insert, pause=pause)
        return client

    def loam(self, *arguments):
        """Runs the program `loam`, which must succeed. Returns its output."""
        done = subprocess.run([LOAM, *map(str, arguments), "--connect", self.address], capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False)
        if done.returncode != 0:
            raise AssertionError(f"loam {arguments}: {done.returncode}: {done.stdout} {done.stderr}")
        return done.stdout

    def wait_until_fenced(self, client, times=1):
        """Waits until every storage node refuses the requests of `times` sessions of the client."""
        def fenced():
            log = self.manager.log()
            sessions = re.findall(rf"session (\d+) \({re.escape(client.name)}\) ended", log)
            return sum(f"session {session} is fenced everywhere" in log for session in sessions) >= times

        poll(fenced, f"{client.name} is fenced")

    def history(self):
        return History.read(client.history_path for client in self.clients.values()
                            if os.path.exists(client.history_path))

    def print_logs(self):
        for process in [self.manager, *self.nodes, *self.clients.values()]:
            if process.process is None:
                continue
            lines = process.log(whole=True).splitlines()
            print(f"======== {process.name} (exit {process.process.poll()}), {len(lines)} lines", file=sys.stderr)
            print("\n".join(lines[-LOG_LINES:]), file=sys.stderr)

    def close(self):
        for process in [*self.clients.values(), *self.nodes, self.manager]:
            process.close()
        if os.environ.get("LOAM_KEEP") is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            print(f"kept: {self.folder}", file=sys.stderr)


class ClusterTest(unittest.TestCase):
    """Each test has a cluster of its own with accounts. Tests end with check_history()."""

    cluster = None

    def make_cluster(self):
        return Cluster()

    def run(self, result=None):
        def failed():
            return len(result.failures) + len(result.errors)

        before = failed()
        try:
            return super().run(result)
        finally:
            if self.cluster is not None:
                if failed() > before:
                    self.cluster.print_logs()
                self.cluster.close()

    def setUp(self):
        self.cluster = self.make_cluster()
        self.cluster.start()
        self.guide = self.cluster.client("guide")
        self.guide.call_ok(f"load {ACCOUNTS} {BALANCE}")

    def check_history(self, total=ACCOUNTS * BALANCE):
        """Checks that the histories agree with each other and with the final state. No client writes any more."""
        reader = self.cluster.client("final")
        # A commit manager that has just restarted may not answer begins yet.
        final = poll(lambda: reader.call("scan").get("records"), "a scan at the end")
        checked = self.cluster.history().check(final=final, total=total)
        self.assertEqual(checked.violations, [], "\n".join(checked.violations[:20]))
        return checked


def main():
    del sys.argv[1:5]
    unittest.main(verbosity=2)
