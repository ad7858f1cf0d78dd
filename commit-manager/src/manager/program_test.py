"""Tests the program loam-commit-manager: options, its data folder, and signals."""

import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, "common/program")
import server_program_checks as frame  # noqa: E402

PROGRAM, NODE = sys.argv[1:3]
LOOPBACK = ["--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0"]


def check_ranges():
    for wrong in (["--nodes", "100000"], ["--publish-interval", "1us"], ["--client-lease", "1ms"],
                  ["--node-lease", "2h"], ["--max-transaction-age", "0"], ["--ids-ahead", "0"]):
        frame.expect_refused(PROGRAM, wrong, frame.BAD_OPTION)


def check_data(folder):
    data = pathlib.Path(folder) / "data"
    with frame.Server(PROGRAM, *LOOPBACK) as manager:
        frame.expect(any("no --data folder" in line for line in manager.lines), "it warns that its state will be lost")
    with frame.Server(PROGRAM, *LOOPBACK, "--data", data) as manager:
        frame.expect_refused(PROGRAM, [*LOOPBACK, "--data", data], frame.FAILED, str(data),
                             f"process {manager.process.pid}")
        manager.process.kill()
        manager.wait()
    with frame.Server(PROGRAM, *LOOPBACK, "--data", data) as manager:
        frame.expect(manager.end() == frame.STOPPED, "it starts again after a kill")
    frame.expect_refused(PROGRAM, [*LOOPBACK, "--data", "/proc/self"], frame.BAD_OPTION, "/proc/self")
    frame.expect_refused(PROGRAM, [*LOOPBACK, "--data", data / "missing" / "folder"], frame.BAD_OPTION, "missing")


def check_crashes(folder):
    """A manager dies at each step of its first write to the folder. The next manager must start with this folder."""
    for point in ("before", "beside", "written", "renamed", "after"):
        data = pathlib.Path(folder) / point
        env = {**os.environ, "LOAM_PAUSE": f"manager.durable.{point}=kill"}
        died = subprocess.run([PROGRAM, *LOOPBACK, "--data", str(data)], env=env, capture_output=True, text=True,
                              timeout=frame.DEADLINE_S)
        frame.expect(died.returncode == -signal.SIGKILL, f"it died at {point}: {died}")
        with frame.Server(PROGRAM, *LOOPBACK, "--data", data) as manager:
            frame.expect(manager.end() == frame.STOPPED, f"it starts after a death at {point}: {manager.lines}")


def check_full_disk(folder):
    data = pathlib.Path(folder) / "full"
    with frame.Server(PROGRAM, *LOOPBACK, "--data", data) as manager:
        (data / "state.new").symlink_to("/dev/full")
        # A node's registration has to be stored.
        node = subprocess.Popen([NODE, "--manager", manager.address, "--admin", "", "--memory", "64MiB", "--page", "1MiB"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            code = manager.wait()
        finally:
            node.kill()
            node.wait()
        frame.expect(code == frame.CANNOT_CONTINUE, f"a full disk ends it with exit code 3: {code}")
        frame.expect(any("make room on that disk" in line for line in manager.lines), f"it logs why: {manager.lines}")


def check_log_limit():
    """A peer that is refused many times does not fill the disk: the log has some of the lines, and counts the others."""
    refused = 500
    version = int(re.search(r"kProtocolVersion = (\d+);", pathlib.Path("common/wire/opcode.h").read_text()).group(1))
    hello = struct.pack("<Q6IQ24x", 0xFF74654E6D616F4C, 64, version, 1, 0, 64 << 10, 16, 16 << 20)
    with frame.Server(PROGRAM, *LOOPBACK) as manager:
        for _ in range(refused):
            with socket.create_connection(("127.0.0.1", manager.port), timeout=frame.DEADLINE_S) as peer:
                peer.sendall(hello)
                peer.recv(len(hello), socket.MSG_WAITALL)
                peer.sendall(bytes(16))  # a frame of no bytes
                while peer.recv(1000):
                    pass
        frame.expect(manager.end() == frame.STOPPED, "it still serves afterwards")
        shown = [line for line in manager.lines if " closed: kMalformed" in line and "lines suppressed" not in line]
        frame.expect(0 < len(shown) < refused / 2, f"{len(shown)} lines of {refused}: {manager.lines}")
        suppressed = [int(found[1]) for line in manager.lines
                      if (found := re.search(r" (\d+) lines suppressed, such as: ", line))]
        frame.expect(len(shown) + sum(suppressed) == refused, f"every line is shown or counted: {manager.lines}")


def main():
    frame.check(PROGRAM, "loam-commit-manager", LOOPBACK, watched=True)
    check_ranges()
    check_log_limit()
    with tempfile.TemporaryDirectory() as folder:
        check_data(folder)
        check_crashes(folder)
        check_full_disk(folder)
    print("ok")


main()
