"""Tests failures of RDMA and their error messages: errors on one host, and failures of the wire between two hosts.

    python3 tests/rdma/failure_test.py build/dev/tests/rdma/loam-net-probe build/dev/lib/loam/loam-rdma.so
"""

import contextlib
import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guest  # noqa: E402

PROBE, MODULE = "", ""
PEER_TIMEOUT_S = 4
MTU = "ip link set $(basename /sys/class/net/e*) mtu {}; "


def environment():
    return {"LOAM_MODULE_DIR": os.path.dirname(MODULE), "PROBE": PROBE,
            "PEER_TIMEOUT_MS": str(PEER_TIMEOUT_S * 1000)}


class ErrorsTest(unittest.TestCase):
    """Provokes each error in one guest and checks its message."""

    STEPS = (
        # command; exit code; expected message
        ("$PROBE ping rdma://10.77.0.1:7401 1", 3,
         "cannot connect to rdma://10.77.0.1:7401: connection refused; does the server run, and listen there?"),
        ("$PROBE ping rdma://127.0.0.1:7401 1", 3, "cannot connect to rdma://127.0.0.1:7401: "),
        ("$PROBE serve rdma://10.77.0.1:7402 > /tmp/output 2>&1 & until grep -q listening /tmp/output; do :; done;"
         " ip link set rdma0 down; until grep -q 'is down' /tmp/output; do :; done;"
         " ip link set rdma0 up; until grep -q 'is up' /tmp/output; do :; done; kill %1; wait %1; cat /tmp/output", 0,
         "RDMA device rxe0: port 1 is down; its connections end if it does not come back soon"),
        ("$PROBE serve rdma://10.77.1.1:7403 > /tmp/output & until grep -q listening /tmp/output; do :; done;"
         " $PROBE ping rdma://10.77.1.1:7403 30 > /tmp/pinged & until grep -q 'answered [1-9]' /tmp/pinged; do :; done;"
         " ip address delete 10.77.1.1/24 dev rdma1; wait %2; code=$?; cat /tmp/pinged; kill %1; (exit $code)", 3,
         "does the address of this connection, and so its GID, still exist?"),
        ("$PROBE serve rdma://192.0.2.1:7401", 1, "192.0.2.1 is not an address of an RDMA device of this host"),
        ("rping -s -a 10.77.0.1 -p 7500 -C 1 > /dev/null 2>&1 & until $PROBE ping rdma://10.77.0.1:7500 1 > /tmp/output;"
         " grep -v refused /tmp/output; do :; done; false", 1, "the peer does not speak Loam's protocol; is the port right?"),
        ("(ulimit -l 64; capsh --drop=cap_ipc_lock -- -c '$PROBE serve rdma://10.77.0.1:7402')", 1,
         "registering 1024 KiB of memory with rxe0 failed: Cannot allocate memory (ENOMEM); the limit of locked memory is"
         " 64 KiB: raise it with 'ulimit -l unlimited'"),
        ("LOAM_MODULE_DIR=/nowhere $PROBE serve rdma://10.77.0.1:7402", 1,
         "rdma:// needs the module loam-rdma.so, which is not in /nowhere"),
        ("rdma link delete rxe0; rdma link delete rxe1; $PROBE serve rdma://10.77.0.1:7402", 1,
         "there is no RDMA device: 'rdma link' lists the devices"),
        ("rm -f /usr/lib/*/librdmacm.so.1*; $PROBE serve rdma://10.77.0.1:7402", 1,
         "librdmacm.so.1: cannot open shared object file: No such file or directory; install the Debian packages"
         " librdmacm1, libibverbs1 and ibverbs-providers"),
        ("$PROBE serve tcp://127.0.0.1:0 & sleep 1; kill %1; wait %1", 143, "listening tcp://127.0.0.1:"),
    )

    def test_every_error_says_what_to_do(self):
        script = "set -m\n" + "".join(f"echo '== step'; {{ {step}\n}} 2>&1; echo \"exit $?\"\n" for step, _, _ in self.STEPS)
        code, output = guest.shell(script, environment=environment(), timeout_s=120)
        self.assertEqual(code, 0, output)
        step_outputs = output.split("== step\n")[1:]
        self.assertEqual(len(step_outputs), len(self.STEPS), output)
        for (step, wanted_code, wanted_text), text in zip(self.STEPS, step_outputs):
            with self.subTest(step):
                self.assertIn(wanted_text, text)
                self.assertIn(f"exit {wanted_code}\n", text)


class TwoGuests(unittest.TestCase):
    """A server and a client in two guests. The wire between them can be pulled."""

    SERVER_MTU, CLIENT_MTU, PING_BYTES = 1500, 1500, 14

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        wire = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory(prefix="loam-wire-"))) / "wire"
        self.server = self._start(f"{MTU.format(self.SERVER_MTU)}{PROBE} serve rdma://10.77.1.1:7400", guest.Wire(str(wire), 1))
        deadline = time.monotonic() + 30
        while not wire.exists():
            self.assertLess(time.monotonic(), deadline, "QEMU did not create the wire")
            time.sleep(0.02)  # poll interval
        # The client repeats its first ping until the server answers. The test uses the connection of the second ping.
        self.client = self._start(f"{MTU.format(self.CLIENT_MTU)}until {PROBE} ping rdma://10.77.1.1:7400 6 | grep -q '^answered [1-9]'; do :; done;"
                                  f" {PROBE} ping rdma://10.77.1.1:7400 60 {self.PING_BYTES}", guest.Wire(str(wire), 2))
        self.server.wait_for("listening")
        self.client.wait_for("connected")
        self.client.wait_for("answered")
        self.closed_before = self.server.output().count("closed")

    def _start(self, script, wire):
        return self.stack.enter_context(
            guest.Guest(["bash", "-c", script], wire=wire, environment=environment(), memory_mib=1024))

    def assert_closed(self, machine, wanted, timeout_s):
        """Checks that the connection ends in time and that the guest reports it."""
        ended = self.closed_before if machine is self.server else 0
        deadline = time.monotonic() + timeout_s
        while (output := machine.output()).count("closed") == ended or not output.endswith("\n"):
            self.assertLess(time.monotonic(), deadline, output)
            time.sleep(0.05)  # poll interval
        for text in wanted:
            self.assertIn(text, output.splitlines()[-1])


class WireTest(TwoGuests):
    def test_a_wire_that_is_pulled_ends_the_connection_on_both_sides(self):
        self.server.plug(False)
        for machine in (self.client, self.server):
            self.assert_closed(machine, ["kUnavailable", "10.77.1."], 3 * PEER_TIMEOUT_S)

    def test_a_frozen_peer_counts_as_dead(self):
        self.server.freeze()
        self.assert_closed(self.client, ["kUnavailable", "the peer does not acknowledge (retries exhausted)"],
                           3 * PEER_TIMEOUT_S)

    def test_connection_survives_a_short_interruption(self):
        self.server.plug(False)
        self.server.plug(True)
        before = self.client.output().count("answered")
        deadline = time.monotonic() + 30
        while self.client.output().count("answered") < before + 4:
            self.assertLess(time.monotonic(), deadline, self.client.output())
            self.assertNotIn("closed", self.client.output())
            time.sleep(0.05)  # poll interval


class MtuTest(TwoGuests):
    """The client's frames are larger than the server's device accepts; small messages arrive."""

    CLIENT_MTU, PING_BYTES = 4200, 8000

    def test_frames_that_never_arrive_end_the_connection(self):
        self.assert_closed(self.server, ["kUnavailable", "retries exhausted", "the port's MTU"], 3 * PEER_TIMEOUT_S)
        self.assert_closed(self.client, ["kUnavailable"], 3 * PEER_TIMEOUT_S)


if __name__ == "__main__":
    PROBE, MODULE = (str(pathlib.Path(path).resolve()) for path in sys.argv[1:3])
    guest.unittest_main(sys.argv[3:])
