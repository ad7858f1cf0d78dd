"""The program as operators meet it: --help, wrong options, a port in use, SIGTERM."""

import re
import signal
import socket
import subprocess
import sys

PROGRAM = sys.argv[1]


def run(*arguments):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=30)


def expect(condition, what):
    if not condition:
        print(f"FAILED: {what}")
        sys.exit(1)


def start(*arguments):
    process = subprocess.Popen(
        [PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    lines = []
    for line in process.stdout:
        lines.append(line)
        found = re.search(r"serving at (tcp://127\.0\.0\.1:(\d+)), administration at 127\.0\.0\.1:(\d+)", line)
        if found:
            return process, lines, int(found.group(2)), int(found.group(3))
    expect(False, f"it starts: {lines}")


def main():
    help_text = run("--help")
    expect(help_text.returncode == 0 and "--listen" in help_text.stdout, "--help")
    expect("Exit codes" in help_text.stdout, "--help tells the exit codes")

    for wrong in (["--no-such-option"], ["--listen", "7400"], ["--nodes", "100000"], ["--publish-interval-us", "1"]):
        result = run(*wrong)
        expect(result.returncode == 2, f"{wrong} is a wrong option: {result}")

    process, lines, port, admin_port = start("--listen", "tcp://127.0.0.1:0", "--admin", "127.0.0.1:0", "--nodes", "2")
    try:
        expect("listen tcp://127.0.0.1:0" in lines[0] and "nodes 2" in lines[0], "effective options are printed")
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        taken = run("--listen", f"tcp://127.0.0.1:{port}", "--admin", "")
        expect(taken.returncode == 1 and str(port) in taken.stderr + taken.stdout, f"data port in use: {taken}")
        taken = run("--listen", "tcp://127.0.0.1:0", "--admin", f"127.0.0.1:{admin_port}")
        expect(taken.returncode == 1 and str(admin_port) in taken.stderr + taken.stdout, f"admin port in use: {taken}")
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=20)
        expect(process.returncode == 0, f"SIGTERM stops it cleanly: {process.returncode} {rest}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    print("ok")


main()
