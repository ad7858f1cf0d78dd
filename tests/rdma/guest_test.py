"""Tests guest.py: verbs work in the guest, exit codes and files are returned, and no process of a guest remains."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import guest  # noqa: E402

PROGRAM = pathlib.Path(guest.__file__)
RPING = """set -e
ibv_devinfo -d rxe0 | grep PORT_ACTIVE
rping -s -a 10.77.0.1 -C 5 &
for _ in $(seq 100); do
  rping -c -a 10.77.0.1 -C 5 -v && break
  sleep 0.1 # poll interval
done
wait $!
"""


def qemus(parent):
    """Returns the ids of the QEMU processes whose parent is `parent`."""
    found = subprocess.run(["ps", "-o", "pid=,comm=", "--ppid", str(parent)], capture_output=True, text=True).stdout
    return [int(line.split()[0]) for line in found.splitlines() if "qemu" in line]


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class GuestTest(unittest.TestCase):
    def test_verbs_carry_data(self):
        code, output = guest.shell(RPING)
        self.assertEqual(code, 0, output)
        self.assertIn("ping data: rdma-ping-4", output)

    def test_exit_code_output_files_and_environment_come_back(self):
        with tempfile.TemporaryDirectory() as folder:
            results = pathlib.Path(folder) / "results"
            before = sorted(os.listdir(folder))
            code, output = guest.shell(f"echo $COLOUR > {results}/file; touch {folder}/lost; echo to stderr >&2; pwd;"
                                "seq 100000; exit 23", results=results, environment={"COLOUR": "dark red"})
            self.assertEqual(code, 23, output)
            self.assertEqual((results / "file").read_text(), "dark red\n")
            self.assertEqual(sorted(os.listdir(folder)), before + ["results"], "the guest writes only into its layer")
        lines = output.splitlines()
        self.assertEqual(lines[:2], ["to stderr", os.getcwd()])
        self.assertEqual(lines[2:], [str(number) for number in range(1, 100001)])

    def test_a_hung_command_is_ended_with_its_guest(self):
        code, output = guest.shell("echo started; sleep infinity", timeout_s=2)
        self.assertEqual((code, output), (guest.TIMED_OUT, "started\n"))
        self.assertEqual(qemus(os.getpid()), [])

    def test_death_of_the_guest_differs_from_failure_of_the_command(self):
        code, _ = guest.shell("echo c > /proc/sysrq-trigger; sleep 30")
        self.assertEqual(code, guest.DIED)

    def test_missing_device_is_reported(self):
        code, output = guest.shell("echo never run", network="echo no cable; exit 1")
        self.assertEqual((code, output), (guest.DIED, ""))

    def test_no_guest_outlives_its_caller_or_holds_its_pipes(self):
        caller = subprocess.Popen([PROGRAM, "run", "--", "sleep", "infinity"], stdout=subprocess.PIPE)
        deadline = time.monotonic() + 60
        while not (emulators := qemus(caller.pid)):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)  # poll interval
        caller.send_signal(signal.SIGKILL)
        self.assertEqual(caller.stdout.read(), b"")
        caller.stdout.close()
        caller.wait()
        while any(alive(pid) for pid in emulators):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)  # poll interval

    def test_without_qemu_the_tests_are_skipped_with_a_reason(self):
        here = subprocess.run([sys.executable, PROGRAM, "run", "--", "true"], capture_output=True, text=True,
                              env={**os.environ, "PATH": "/nowhere"})
        self.assertEqual(here.returncode, guest.SKIPPED)
        self.assertIn("there is no qemu-system-x86_64 on this machine; run scripts/setup", here.stderr)


if __name__ == "__main__":
    guest.unittest_main()
