"""Tests the program loam-storage-node: options, signals, an absent commit manager, cores, and replacement."""

import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, "common/program")
import server_program_checks as frame  # noqa: E402

NODE, MANAGER = sys.argv[1:3]
SMALL = ["--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0", "--memory", "64MiB", "--page", "1MiB"]


def check_ranges():
    for wrong, says in ((["--page", "3"], "power of two"), (["--network-threads", "0"], "1 to"),
                        (["--compact-dead-share", "2"], "a number from 0 to 1"), (["--compact-dead-share", "1"], "0 and 1"),
                        (["--columns", "some"], "never, scanned or always"), (["--column-rows", "0"], "at least 1"),
                        (["--compact-core-share", "1"], "below 1"), (["--compact-watermark", "0"], "0 and 1"),
                        (["--background-nice", "20"], "0 to 19"), (["--scan-nice", "20"], "0 to 19"),
                        (["--memory", "plenty"], "a size such as"),
                        (["--network-threads", "-1"], "whole number"), (["--network-cores", "0-"], "such as 2,4-7"),
                        (["--network-cores", "99999"], "this process may use")):
        frame.expect_refused(NODE, wrong, frame.BAD_OPTION, says)


def check_without_manager():
    absent = ["--manager", "tcp://127.0.0.1:1"]
    frame.expect_refused(NODE, [*SMALL, *absent, "--register-timeout", "200ms"], frame.FAILED, "could not start")
    waiting = subprocess.Popen([NODE, *SMALL, *absent, "--register-timeout", "1h"],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        frame.expect("listen=" in waiting.stdout.readline(), "it logs its options at the start")
        begun = time.monotonic()
        waiting.send_signal(signal.SIGTERM)
        waiting.communicate(timeout=frame.DEADLINE_S)
        frame.expect(waiting.returncode == frame.STOPPED, f"SIGTERM ends the start: {waiting.returncode}")
        frame.expect(time.monotonic() - begun < 10, "SIGTERM ends the start at once")
    finally:
        waiting.kill()
        waiting.wait()


def threads_of(node):
    """Returns the folder in /proc of each thread by the thread's name."""
    tasks = pathlib.Path(f"/proc/{node.process.pid}/task").iterdir()
    return {(task / "comm").read_text().strip(): task for task in tasks}


def expect_cores(node, thread, cores):
    """Waits until the thread runs on these cores. A thread binds itself when it starts, which may be after the server
    is ready. Returns the folder of the thread in /proc."""
    begun = time.monotonic()
    while (task := threads_of(node).get(thread)) is None or os.sched_getaffinity(int(task.name)) != cores:
        frame.expect(time.monotonic() - begun < frame.DEADLINE_S, f"{thread} runs on {cores}: {threads_of(node)}")
        time.sleep(0.01)  # poll interval
    return task


def check_network_threads(manager):
    """Network threads run on the cores of --network-cores, and do not sleep with --never-sleep."""
    cores = sorted(os.sched_getaffinity(0))
    listed = ",".join(map(str, cores[:2]))
    place = [*SMALL, "--manager", manager.address, "--network-threads", "3", "--network-cores", listed, "--never-sleep"]
    with frame.Server(NODE, *place) as node:
        for i in range(3):
            task = expect_cores(node, f"loam-net-{i}", {cores[:2][i % len(cores[:2])]})
        expect_cores(node, "loam-control", set(cores))
        # The test does not measure processor time, because a thread that yields in every round gets little of it if
        # other programs run.
        states = []
        while len(states) < 100:
            states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
            time.sleep(0.002)  # poll interval
        frame.expect(states.count("R") > 90, f"an idle thread that never sleeps runs: {states}")
        frame.expect(node.end() == frame.STOPPED, "it ends")


def check_replaced(manager):
    """A new process at the address of a node replaces it, and the older process ends."""
    place = [*SMALL, "--manager", manager.address, "--advertise", "tcp://127.0.0.1:7"]
    with frame.Server(NODE, *place) as first:
        with frame.Server(NODE, *place) as second:
            frame.expect(first.wait() == frame.CANNOT_CONTINUE, f"a node that was replaced ends with 3: {first.lines}")
            frame.expect(any("ending: kFenced" in line for line in first.lines), f"it logs why: {first.lines}")
            frame.expect(second.end() == frame.STOPPED, "the new process stays in service")


def main():
    manager_arguments = ["--listen", "tcp://127.0.0.1:0", "--admin", "", "--nodes", "0"]
    with frame.Server(MANAGER, *manager_arguments) as manager:
        frame.check(NODE, "loam-storage-node", [*SMALL, "--manager", manager.address], watched=False)
        check_ranges()
        check_network_threads(manager)
        check_replaced(manager)
    check_without_manager()
    print("ok")


main()
