"""Tests `loam cluster`, and the commands that administer a cluster of processes: status, stats --watch, node list and
node accept-loss."""

import fcntl
import json
import os
import pathlib
import pty
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest

import cluster
from cluster import loam, wait_until

SERVERS = ("commit-manager", "node-1", "node-2")


class LocalClusterTest(unittest.TestCase):
    """Each test has a cluster folder of its own. The processes that still run at the end of the test are killed."""

    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="loam_cluster_"))
        self.folder = self.directory / "cluster"
        self.address = None
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.addCleanup(self.kill_all)

    def kill_all(self):
        for pid_file in self.folder.glob("*.pid"):
            try:
                os.kill(int(pid_file.read_text().split()[0]), signal.SIGKILL)
            except (ProcessLookupError, ValueError, IndexError):
                pass

    def logs(self):
        return "".join(f"--- {log.name}\n{log.read_text()[-2000:]}\n" for log in sorted(self.folder.glob("*.log")))

    def cluster(self, *arguments, **options):
        return loam("cluster", *arguments, "--dir", self.folder, **options)

    def loam(self, *arguments, **options):
        return loam(*arguments, connect=self.address, **options)

    def good(self, result):
        self.assertEqual(result.returncode, 0, f"{result.args}: {result.stdout}{result.stderr}{self.logs()}")
        return result.stdout

    def bad(self, code, result, says):
        self.assertEqual(result.returncode, code, f"{result.args}: {result.stdout}{result.stderr}")
        self.assertIn(says, result.stderr)

    def objects(self, result):
        return [json.loads(line) for line in self.good(result).splitlines()]

    def up(self, *arguments):
        # The lease outlasts a pause of a busy machine, after which a storage node would count as unreachable. A loss is
        # accepted after the lease of the lost node has run out.
        report = self.objects(self.cluster("up", "--free-ports", "--memory", "64MiB", "--node-option", "page=2MiB",
                                         "--manager-option", "node-lease=5s", "--json", *arguments))[0]
        self.address = report["address"]
        return report

    def states(self):
        result = self.cluster("status", "--json")
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(result.returncode, 0 if all(row["state"] == "ready" for row in rows) else 6)
        return {row["process"]: row["state"] for row in rows}

    def node_states(self):
        return [node["state"] for node in self.objects(self.loam("node", "list", "--json"))]


class UpAndDownTest(LocalClusterTest):
    def test_cluster_starts_and_stops(self):
        report = self.up()
        self.assertTrue(report["new"])
        self.assertEqual(report["started"], list(SERVERS))
        self.assertEqual(self.states(), dict.fromkeys(SERVERS, "ready"))
        self.assertIn("commit-manager", self.good(self.cluster("status")))
        self.bad(1, self.cluster("up"), says="a cluster runs in")
        self.good(self.loam("table", "create", "t", "--field", "n:int64"))
        self.good(self.loam("put", "t", 1, "n=5"))
        status = self.objects(self.loam("status", "--json"))[0]
        self.assertTrue(status["ready"])
        self.assertEqual([node["state"] for node in status["nodes"]], ["live", "live"])
        self.assertEqual([node["id"] for node in status["nodes"]], [1, 2])
        self.assertEqual(status["nodes"][0]["address"], report["processes"][1]["address"], "node-1 is number 1")
        self.assertEqual(sum(node["shards"] for node in status["nodes"]), 1024)
        self.assertIn("storage nodes", self.good(self.loam("status")))
        ended = self.objects(self.cluster("down", "--json"))
        self.assertEqual([(one["process"], one["ended"], one["killed"]) for one in ended],
                         [(name, True, False) for name in reversed(SERVERS)])
        self.assertEqual(self.states(), dict.fromkeys(SERVERS, "down"))
        for process in report["processes"]:
            self.assertFalse(os.path.exists(f"/proc/{process['pid']}/exe"))
        self.assertIn("was not running", self.good(self.cluster("down")))
        self.assertIn("serving at", (self.folder / "node-2.log").read_text())

    def test_processes_stop_and_start_alone(self):
        self.up("--nodes", "1")
        self.good(self.loam("table", "create", "t", "--field", "n:int64"))
        self.good(self.loam("put", "t", 1, "n=5"))
        self.bad(1, self.cluster("start", "node-1"), says="node-1 runs already")
        self.bad(2, self.cluster("stop", "node-7"), says="there are commit-manager, node-1")
        self.assertIn("killed", self.good(self.cluster("stop", "commit-manager", "--kill")))
        self.assertEqual(self.states(), {"commit-manager": "dead", "node-1": "ready"})
        self.assertIn("ready", self.good(self.cluster("start", "commit-manager")))
        self.assertEqual(json.loads(self.good(self.loam("get", "t", 1, "--json")))["n"], 5)
        self.assertEqual(self.objects(self.loam("status", "--json"))[0]["manager"]["epoch"], 2)

    def test_paused_process_is_shown_and_ended(self):
        report = self.up("--nodes", "1")
        os.kill(report["processes"][1]["pid"], signal.SIGSTOP)
        wait_until(lambda: self.states()["node-1"] == "paused", "the status shows it paused")
        ended = self.objects(self.cluster("down", "--json"))
        self.assertEqual([(one["process"], one["killed"]) for one in ended],
                         [("node-1", False), ("commit-manager", False)])

    def test_stats_prints_rates(self):
        self.up("--nodes", "1")
        looks = self.objects(self.loam("stats", "--watch", "0.2", "--count", "2", "--json"))
        self.assertEqual(len(looks), 2)
        self.assertEqual(looks[0]["nodes"][0]["node"], 1)
        self.assertIn("commits_per_s", looks[0]["manager"])
        self.assertIn("commits/s", self.good(self.loam("stats", "--watch", "0.2", "--count", "1")))
        self.assertIn("manager", self.objects(self.loam("stats", "--json"))[0])
        watching = subprocess.Popen([cluster.PROGRAM, "stats", "--watch", "0.1", "--json", "--connect", self.address],
                                    stdout=subprocess.PIPE, text=True)
        json.loads(watching.stdout.readline())
        watching.send_signal(signal.SIGINT)
        self.assertEqual(watching.wait(cluster.DEADLINE_S), 0)
        watching.stdout.close()
        self.bad(2, self.loam("stats", "--count", "1"), says="--watch")
        self.bad(2, self.loam("stats", "--watch", "0"), says="--watch")


class LossTest(LocalClusterTest):
    def crash_node_2(self):
        self.up()
        self.good(self.loam("table", "create", "t", "--field", "n:int64"))
        rows = "key,n\n" + "".join(f"{i},{i}\n" for i in range(500))
        self.good(self.loam("import", "t", "-", "--key", "key", stdin=rows))
        self.good(self.loam("index", "create", "by_n", "--table", "t", "--fields", "n"))
        self.assertEqual(self.index_state(), "ready")
        self.assertRegex(self.good(self.loam("status")), r"commit log +\d+ commits accepted, \d+ of them on the disk")
        accepted = self.objects(self.loam("status", "--json"))[0]["manager"]["log_accepted"]
        inspected = self.objects(loam("log", "inspect", self.folder / "commit-manager.data", "--json"))[0]
        self.assertGreater(accepted, 0)
        self.assertEqual((inspected["end"], inspected["tail"]), (accepted, "clean"))
        self.assertIn("killed", self.good(self.cluster("stop", "node-2", "--kill")))
        self.assertEqual(self.states()["node-2"], "dead")
        self.bad(2, self.cluster("up", "--nodes", "3"), says="a part of the cluster still runs")
        again = self.objects(self.cluster("up", "--json"))[0]
        self.assertEqual((again["new"], again["started"]), (False, ["node-2"]))
        self.assertEqual(self.states(), {"commit-manager": "ready", "node-1": "ready", "node-2": "lost"})
        self.assertEqual(self.node_states(), ["live", "lost"])
        result = self.loam("status")
        self.assertEqual(result.returncode, 6)
        self.assertIn("`loam node accept-loss 2`", result.stdout)

    def index_state(self):
        return self.objects(self.loam("index", "list", "--json"))[0]["state"]

    def count(self):
        return self.objects(self.loam("scan", "t", "--aggregate", "count(*) as n", "--json"))[0]["n"]

    def test_accepting_a_loss_restores_service(self):
        self.crash_node_2()
        self.bad(2, self.loam("node", "accept-loss", 2, stdin=""), says="use --yes to confirm")
        self.bad(1, self.loam("node", "accept-loss", 1, "--yes"), says="storage node 1 is live: it has lost nothing")
        self.bad(1, self.loam("node", "accept-loss", 9, "--yes"), says="there is no storage node 9")
        self.bad(2, self.loam("node", "accept-loss", "two", "--yes"), says="two")
        accepted = self.objects(self.loam("node", "accept-loss", 2, "--yes", "--json"))
        self.assertEqual(accepted, [{"accepted": 2, "shards": 512}])
        self.assertEqual(self.node_states(), ["live", "live"])
        self.assertEqual(self.states()["node-2"], "ready")
        self.assertEqual(self.index_state(), "damaged")
        self.assertEqual(self.objects(self.loam("status", "--json"))[0]["damaged_indexes"], ["by_n"])
        self.assertIn("Index by_n is damaged", self.loam("status").stdout)
        self.assertIn("n (damaged)", self.good(self.loam("table", "describe", "t")))
        again = "loam index drop by_n && loam index create by_n --table t --fields n"
        self.bad(1, self.loam("scan", "t", "--index", "by_n"), says=again)
        self.bad(1, self.loam("index", "create", "by_n", "--table", "t", "--fields", "n"), says=again)
        left = self.count()
        self.assertTrue(100 < left < 400, f"{left} of 500 records are left, of which node 1 had about half")
        rows = "key,n\n" + "".join(f"{i},{i}\n" for i in range(500, 1000))
        self.good(self.loam("import", "t", "-", "--key", "key", stdin=rows))
        self.assertEqual(self.count(), left + 500)
        self.good(self.loam("index", "drop", "by_n", "--yes"))
        self.good(self.loam("index", "create", "by_n", "--table", "t", "--fields", "n"))
        found = self.objects(self.loam("scan", "t", "--index", "by_n", "--from", "500", "--json"))
        self.assertEqual(len(found), 500)
        self.assertEqual(self.objects(self.loam("status", "--json"))[0]["damaged_indexes"], [])

    def answer_on_a_terminal(self, answer):
        leader, follower = pty.openpty()
        process = subprocess.Popen([cluster.PROGRAM, "node", "accept-loss", "2", "--connect", self.address],
                                   stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        os.close(follower)
        os.write(leader, answer.encode() + b"\n")
        output, errors = process.communicate(timeout=cluster.DEADLINE_S)
        os.close(leader)
        return process.returncode, output, errors

    def test_accepting_a_loss_asks_on_a_terminal(self):
        self.crash_node_2()
        code, _, errors = self.answer_on_a_terminal("yes")
        self.assertEqual(code, 1, errors)
        self.assertIn("the records of its 512 shards are lost permanently", errors)
        self.assertIn("nothing was accepted", errors)
        self.assertEqual(self.node_states(), ["live", "lost"])
        code, output, errors = self.answer_on_a_terminal("2")
        self.assertEqual(code, 0, errors)
        self.assertIn("storage node 2 serves its 512 shards again, empty", output)
        self.assertIn("damaged indexes, to be dropped and created again: by_n", output)


class ErrorsTest(LocalClusterTest):
    def test_missing_cluster_is_an_error(self):
        for arguments in (["status"], ["down"], ["stop", "node-1"], ["start", "node-1"]):
            self.bad(1, self.cluster(*arguments), says="there is no cluster in")
        with cluster.refusing_port() as port:
            self.address = f"tcp://127.0.0.1:{port}"
            for arguments in (["status"], ["node", "list"], ["node", "accept-loss", 1, "--yes"], ["stats", "--watch"]):
                self.bad(3, self.loam(*arguments), says="cannot connect to")
            self.bad(3, self.loam("status", "--admin", f"127.0.0.1:{port}"), says="does not answer")

    def test_wrong_settings_are_refused(self):
        self.bad(2, self.cluster("up", "--nodes", 0), says="--nodes")
        self.bad(2, self.cluster("up", "--nodes", 10), says="--nodes")
        self.bad(2, self.cluster("up", "--free-ports", "--memory", "lots"), says="--memory: expected a size such as 64MiB")
        self.bad(2, self.cluster("up", "--free-ports", "--node-option", "x"), says="write field=value")
        self.bad(7, self.cluster("up", "--free-ports", "--memory", "900TiB"), says="need more than")
        (self.directory / "file").write_text("")
        self.bad(7, loam("cluster", "up", "--dir", self.directory / "file"), says="cannot write")

    def test_process_that_dies_at_its_start_is_reported(self):
        # The nodes have enough memory to start, so the commit manager alone ends.
        result = self.cluster("up", "--free-ports", "--memory", "128MiB", "--manager-option", "nonsense=1")
        self.bad(7, result, says="commit-manager ended at its start")
        self.assertIn("there is no option 'nonsense'", result.stderr)
        self.assertEqual(self.states(), dict.fromkeys(SERVERS, "down"))
        error = json.loads(self.cluster("up", "--free-ports", "--memory", "64MiB", "--node-option", "page=3MiB",
                                        "--json").stderr)["error"]
        self.assertEqual(error["exit_code"], 7)
        self.assertIn("node-1 ended at its start", error["message"])
        self.assertEqual(self.states(), dict.fromkeys(SERVERS, "down"))

    def test_ports_in_use_are_reported(self):
        try:
            taken = socket.create_server(("127.0.0.1", 7400))
            self.addCleanup(taken.close)
        except OSError:
            pass  # another program uses the port, which is as good
        self.bad(7, self.cluster("up", "--memory", "64MiB"), says="of 127.0.0.1 is in use")
        report = self.up("--nodes", "1")
        self.good(self.cluster("stop", "node-1"))
        port = int(report["processes"][1]["address"].rsplit(":", 1)[1])
        with socket.create_server(("127.0.0.1", port)):
            self.bad(7, self.cluster("start", "node-1"), says=f"tcp://127.0.0.1:{port} is in use")

    def test_missing_program_is_reported(self):
        alone = self.directory / "loam"
        shutil.copy(cluster.PROGRAM, alone)
        result = subprocess.run([alone, "cluster", "up", "--free-ports", "--memory", "64MiB", "--dir", self.folder],
                                capture_output=True, text=True, env={"PATH": ""}, timeout=cluster.DEADLINE_S, check=False)
        self.bad(7, result, says="the program loam-commit-manager is missing")

    def test_concurrent_commands_are_refused(self):
        self.up("--nodes", "1")
        with open(self.folder / "lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.bad(1, self.cluster("down"), says="another `loam cluster` is at work")
            self.assertEqual(self.states(), {"commit-manager": "ready", "node-1": "ready"})

    def test_damaged_folder_is_reported(self):
        self.folder.mkdir()
        (self.folder / "cluster.json").write_text("{")
        self.bad(1, self.cluster("status"), says="cluster.json is damaged")
        self.bad(7, self.cluster("up", "--free-ports"), says="cluster.json is damaged")


if __name__ == "__main__":
    cluster.main()
