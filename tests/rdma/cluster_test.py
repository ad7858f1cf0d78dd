"""Clusters as processes that talk over verbs: tests of tests/integration, in a guest with Soft-RoCE.

    python3 tests/rdma/cluster_test.py MODULE MANAGER NODE LOAM WORKLOAD [-v]
"""

import os
import pathlib
import re
import shlex
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guest  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
INTEGRATION = HERE.parent / "integration"
MODULE, PROGRAMS = "", []
# What an emulated machine takes for long must not look like death, and a run shall have some hundred transactions.
TIME_SCALE = 10
COUNTERS = """cd /sys/class/infiniband/rxe0/ports/1/hw_counters
for name in rcvd_rnr_err rdma_sends; do echo "counter $name $(cat $name)"; done
"""


class GuestTest(unittest.TestCase):
    def run_in_guest(self, file, *tests):
        command = shlex.join(["python3", str(HERE / "tcp_watch.py"), "python3", str(file), *PROGRAMS, *tests])
        environment = {"LOAM_MODULE_DIR": os.path.dirname(MODULE), "LOAM_LISTEN": "rdma://10.77.0.1:0",
                       "LOAM_TIME_SCALE": str(TIME_SCALE), "TMPDIR": "/run"}
        code, output = guest.shell(f"{command}; code=$?; {COUNTERS} exit $code", environment=environment, timeout_s=300,
                                   memory_mib=3072)
        self.assertEqual(code, 0, output)
        self.assertIn("OK", output)
        self.assertRegex(output, r"tcp: up to [1-9]\d* sockets, 0 not of loopback", "administration is seen, and nothing else")
        counters = {name: int(value) for name, value in re.findall(r"counter (\w+) (\d+)", output)}
        self.assertGreater(counters["rdma_sends"], 1000, "the cluster talked over something else")
        self.assertEqual(counters["rcvd_rnr_err"], 0)


class TransfersTest(GuestTest):
    def test_transfers_of_three_clients_fit_together(self):
        self.run_in_guest(INTEGRATION / "cluster_test.py", "UndisturbedTest.test_transfers_of_three_clients_fit_together")


class ClientKilledTest(GuestTest):
    def test_a_killed_client_is_recovered(self):
        self.run_in_guest(INTEGRATION / "client_death_test.py", "ClientKilledTest.test_while_many_fibers_move_money")


class NodeKilledTest(GuestTest):
    def test_a_killed_node_comes_back_and_its_loss_is_accepted(self):
        self.run_in_guest(INTEGRATION / "node_death_test.py",
                          "NodeKilledTest.test_its_keys_are_unavailable_until_the_loss_is_accepted_and_then_gone")


class DataPathTest(GuestTest):
    def test_rows_go_into_the_clients_memory(self):
        self.run_in_guest(HERE / "data_path.py")


if __name__ == "__main__":
    MODULE, *PROGRAMS = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:6])
    guest.unittest_main(sys.argv[6:])
