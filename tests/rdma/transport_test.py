"""Runs the tests that every transport must pass with verbs, in a guest with Soft-RoCE.

    python3 tests/rdma/transport_test.py build/dev/common/net/net_test build/dev/common/net/rdma_access_test \
        build/dev/lib/loam/loam-rdma.so
"""

import os
import pathlib
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guest  # noqa: E402

PROGRAM, ACCESS, MODULE = "", "", ""
ROUNDS = int(os.environ.get("LOAM_RDMA_ROUNDS", "2"))
# After a failure the output up to then is shown, so that a test that hangs is the last one in it. The script also
# prints the device's counters of messages that found no receive buffer, and of retries.
SCRIPT = """set -o pipefail
{program} --gtest_filter='*/rdma.*:RdmaTest.*' --gtest_repeat={rounds} --gtest_shuffle
code=$?
LOAM_RDMA_ADDRESS=fd77:0::1 {program} --gtest_filter='TransportTest/rdma.Echoes*:RegionTest/rdma.OneSided*' |
  sed -u 's/PASSED/over IPv6/' || code=1
{access} | sed -u 's/PASSED/attacked/' || code=1
cd /sys/class/infiniband/rxe0/ports/1/hw_counters
for name in rcvd_rnr_err send_rnr_err retry_rnr_exceeded_err rdma_sends; do echo "counter $name $(cat $name)"; done
exit $code
"""
# The speed of the guest varies very much. The limit is below that of ctest, so that guest.py reports the time-out.
TIMEOUT_S = min(60 + 120 * ROUNDS, 450)


class TransportTest(unittest.TestCase):
    def test_suite_passes_without_full_receivers(self):
        environment = {"LOAM_RDMA_ADDRESS": "10.77.0.1", "LOAM_RDMA_SECOND_ADDRESS": "10.77.1.1",
                       "LOAM_MODULE_DIR": os.path.dirname(MODULE)}
        code, output = guest.shell(SCRIPT.format(program=PROGRAM, access=ACCESS, rounds=ROUNDS), timeout_s=TIMEOUT_S,
                                   environment=environment)
        self.assertEqual(code, 0, output)
        passed = re.findall(r"PASSED  \] (\d+) tests", output)
        self.assertEqual(len(passed), ROUNDS, output)
        self.assertGreaterEqual(min(map(int, passed)), 32, output)
        self.assertNotIn("SKIPPED", output)
        self.assertIn("over IPv6  ] 2 tests", output)
        self.assertIn("attacked  ] 2 tests", output)
        counters = {name: int(value) for name, value in re.findall(r"counter (\w+) (\d+)", output)}
        self.assertGreater(counters.pop("rdma_sends"), 1000, "the device was not used")
        self.assertEqual(set(counters.values()), {0}, f"credits failed: {counters}")


if __name__ == "__main__":
    PROGRAM, ACCESS, MODULE = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:4])
    guest.unittest_main(sys.argv[4:])
