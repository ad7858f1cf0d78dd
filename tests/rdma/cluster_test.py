"""Tests clusters of processes that communicate by verbs: runs tests of tests/integration in a guest with Soft-RoCE.

    python3 tests/rdma/cluster_test.py MODULE MANAGER NODE LOAM WORKLOAD [-v]
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guest  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
INTEGRATION = HERE.parent / "integration"
MODULE, PROGRAMS = "", []
# In an emulated machine, leases must not run out because a step is slow, and a run must last for some hundred
# transactions.
TIME_SCALE = 10
COUNTERS = """cd /sys/class/infiniband/rxe0/ports/1/hw_counters
for name in rcvd_rnr_err rdma_sends; do echo "counter $name $(cat $name)"; done
"""


# SERVE runs a cluster at one end of a wire, and MOVE a client at the other end. The client's history shows its
# progress. Leases and the client's time-outs are longer than the time for which the wire is pulled.
SERVE = """import subprocess, sys
sys.path.insert(0, "{integration}")
from cluster import Cluster
with Cluster(lease_s=300, node_lease_s=300, manager_options=["--max-transaction-age", "300s"]) as cluster:
    print("cluster at", cluster.address, flush=True)
    subprocess.run(["tail", "-qn", "+1", "-f", *[server.log_path for server in [cluster.manager, *cluster.nodes]]])
"""
MOVE = """client() {{
  name=$1; shift
  {workload} --connect {address} --connect-timeout 60 --request-timeout 120 --commit-timeout 120 --name $name "$@"
}}
echo load 20 100 | client loader console
client mover --history /run/history transfers --keys 20 --seconds {seconds} &
until [ "$(grep -cs '"event":"end"' /run/history)" -ge 20 ] 2> /dev/null; do sleep 0.1; done
echo moving
wait %1
echo sum | client auditor console
echo done
"""
# PULLED_S is twice the time after which a peer that acknowledges nothing counts as dead.
PULLED_S, MOVING_S = 30, 75


class GuestTest(unittest.TestCase):
    def run_in_guest(self, file, *tests):
        command = shlex.join(["python3", str(HERE / "tcp_watch.py"), "python3", str(file), *PROGRAMS, *tests])
        environment = {"LOAM_MODULE_DIR": os.path.dirname(MODULE), "LOAM_LISTEN": "rdma://10.77.0.1:0",
                       "LOAM_TIME_SCALE": str(TIME_SCALE), "TMPDIR": "/run"}
        code, output = guest.shell(f"{command}; code=$?; {COUNTERS} exit $code", environment=environment, timeout_s=300,
                                   memory_mib=3072)
        self.assertEqual(code, 0, output)
        self.assertIn("OK", output)
        self.assertRegex(output, r"tcp: up to [1-9]\d* sockets, 0 not of loopback", "only administration uses TCP")
        counters = {name: int(value) for name, value in re.findall(r"counter (\w+) (\d+)", output)}
        self.assertGreater(counters["rdma_sends"], 1000, "the cluster did not use the RDMA device")
        self.assertEqual(counters["rcvd_rnr_err"], 0)


class TransfersTest(GuestTest):
    def test_histories_of_three_clients_agree(self):
        self.run_in_guest(INTEGRATION / "cluster_test.py", "UndisturbedTest.test_histories_of_three_clients_agree")


class ClientKilledTest(GuestTest):
    def test_a_killed_client_is_recovered(self):
        self.run_in_guest(INTEGRATION / "client_death_test.py", "ClientKilledTest.test_while_many_fibers_move_money")


class NodeKilledTest(GuestTest):
    def test_a_killed_node_comes_back_and_its_loss_is_accepted(self):
        self.run_in_guest(INTEGRATION / "node_death_test.py",
                          "NodeKilledTest.test_its_keys_are_unavailable_until_the_loss_is_accepted_and_then_gone")


class DataPathTest(GuestTest):
    def test_scans_write_rows_into_client_memory(self):
        self.run_in_guest(HERE / "data_path.py")


class CutWireTest(unittest.TestCase):
    """The cluster runs in one guest and a client in another."""

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)

    def start(self, command, path, number):
        environment = {"LOAM_MODULE_DIR": os.path.dirname(MODULE), "LOAM_LISTEN": "rdma://10.77.1.1:0", "TMPDIR": "/run",
                       "LOAM_TIME_SCALE": str(TIME_SCALE)}
        return self.stack.enter_context(guest.Guest(command, wire=guest.Wire(path, number), environment=environment,
                                                    memory_mib=1536))

    def test_client_resumes_when_the_wire_is_plugged_in_again(self):
        path = os.path.join(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="loam-wire-")), "wire")
        server = self.start(["python3", "-c", SERVE.format(integration=INTEGRATION), *PROGRAMS], path, 1)
        output = server.wait_for("cluster at rdma://", timeout_s=120)
        address = re.search(r"cluster at (\S+)", output).group(1)
        script = MOVE.format(workload=PROGRAMS[3], address=address, seconds=MOVING_S)
        client = self.start(["bash", "-c", script], path, 2)
        client.wait_for("moving", timeout_s=120)

        client.plug(False)
        back = time.monotonic() + PULLED_S
        while time.monotonic() < back:
            self.assertNotIn('"codes"', client.output(), "the client ended while the wire was pulled")
            time.sleep(0.1)  # poll interval
        client.plug(True)
        output = client.wait_for("done", timeout_s=120 + MOVING_S)
        outputs = f"client: {output}\nservers: {server.output()}"
        answers = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        moved = next(answer for answer in answers if "codes" in answer)
        self.assertGreater(moved["codes"].get("kOk", 0), 20, moved)
        self.assertLessEqual(set(moved["codes"]), {"kOk", "kConflict", "kUnavailable", "kUnknownOutcome"}, outputs)
        self.assertGreater(moved["longest_ms"], PULLED_S * 500, f"no request waited while the wire was pulled: {moved}")
        self.assertGreater(moved["resumed"], 0, f"the session did not continue: {outputs}")
        self.assertGreater(moved["resent"], 0, f"no request was in flight: {outputs}")
        self.assertEqual(answers[-1]["sum"], 20 * 100, answers[-1])


if __name__ == "__main__":
    MODULE, *PROGRAMS = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:6])
    guest.unittest_main(sys.argv[6:])
