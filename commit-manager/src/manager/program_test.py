"""loam-commit-manager as operators meet it: options, its data folder, signals."""

import pathlib
import sys
import tempfile

sys.path.insert(0, "common/program")
import server_frame as frame  # noqa: E402

PROGRAM = sys.argv[1]
LOOPBACK = ["--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0"]


def check_ranges():
    for wrong in (["--nodes", "100000"], ["--publish-interval", "1us"], ["--client-lease", "1ms"],
                  ["--node-lease", "2h"], ["--max-transaction-age", "0"], ["--ids-ahead", "0"]):
        frame.expect_refused(PROGRAM, wrong, frame.BAD_OPTION)


def check_data(folder):
    data = pathlib.Path(folder) / "data"
    with frame.Server(PROGRAM, *LOOPBACK) as manager:
        frame.expect(any("no --data folder" in line for line in manager.lines), "it says that nothing survives")
    with frame.Server(PROGRAM, *LOOPBACK, "--data", data) as manager:
        frame.expect_refused(PROGRAM, [*LOOPBACK, "--data", data], frame.FAILED, str(data),
                             f"process {manager.process.pid}")
        manager.process.kill()
        manager.wait()
    with frame.Server(PROGRAM, *LOOPBACK, "--data", data) as manager:
        frame.expect(manager.end() == frame.STOPPED, "after a kill it starts again")
    frame.expect_refused(PROGRAM, [*LOOPBACK, "--data", "/proc/self"], frame.BAD_OPTION, "/proc/self")
    frame.expect_refused(PROGRAM, [*LOOPBACK, "--data", data / "missing" / "folder"], frame.BAD_OPTION, "missing")


def main():
    frame.check(PROGRAM, "loam-commit-manager", LOOPBACK)
    check_ranges()
    with tempfile.TemporaryDirectory() as folder:
        check_data(folder)
    print("ok")


main()
