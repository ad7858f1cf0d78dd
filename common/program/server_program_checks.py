"""Checks of the behaviour that all server programs of Loam share: options, configuration file, log, signals, exit
codes.

The test of each program calls check() with the path of its program."""

import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

STOPPED, FAILED, BAD_OPTION, CANNOT_CONTINUE = 0, 1, 2, 3
DEADLINE_S = 30


def expect(condition, what):
    if not condition:
        print(f"FAILED: {what}")
        sys.exit(1)


def run(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE_S)


def expect_refused(program, arguments, code, *says):
    result = run(program, *arguments)
    output = result.stdout + result.stderr
    expect(result.returncode == code, f"{arguments} ends with {code}: {result}")
    for text in says:
        expect(text in output, f"{arguments} says '{text}': {output}")


class Server:
    """A running server. The constructor waits for the log line that names the address of the server."""

    def __init__(self, program, *arguments, env=None):
        self.process = subprocess.Popen(
            [program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, **(env or {})})
        self.lines = []
        self.address = self.admin = None
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"serving at (tcp://\S+?:\d+)(?:, administration at (\S+:\d+))?$", line.strip())
            if found:
                self.address, self.admin = found.groups()
                return
        self.process.wait()
        expect(False, f"{arguments}: the server starts: {self.lines}")

    @property
    def port(self):
        return int(self.address.rsplit(":", 1)[1])

    def end(self, number=signal.SIGTERM):
        """Sends a signal, waits for the end of the program, and returns the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        rest, _ = self.process.communicate(timeout=DEADLINE_S)
        self.lines += rest.splitlines(keepends=True)
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def check_options(program, name):
    help_text = run(program, "--help")
    expect(help_text.returncode == STOPPED and "--listen" in help_text.stdout, "--help")
    expect("Exit codes" in help_text.stdout, "--help tells the exit codes")
    version = run(program, "--version")
    expect(version.returncode == STOPPED and version.stdout.startswith(name + " "), f"--version: {version}")
    expect_refused(program, ["--no-such-option"], BAD_OPTION, "--no-such-option")
    expect_refused(program, ["--spin", "10"], BAD_OPTION, "--spin", "a duration such as")
    expect_refused(program, ["--spin"], BAD_OPTION, "--spin")
    expect_refused(program, ["--json"], BAD_OPTION, "--print-config")
    expect_refused(program, ["--listen", "7400"], BAD_OPTION, "7400")
    checked = run(program, "--check-config", "--spin", "1ms")
    expect(checked.returncode == STOPPED and checked.stdout == "ok\n", f"--check-config: {checked}")
    expect_refused(program, ["--check-config", "--listen", "7400"], BAD_OPTION, "7400")


def check_config_file(program, folder):
    path = pathlib.Path(folder) / "server.toml"

    def refused(text, *says):
        path.write_text(text)
        for more in ([], ["--check-config"]):
            expect_refused(program, ["--config", path, *more], BAD_OPTION, *says)

    expect_refused(program, ["--config", pathlib.Path(folder) / "missing.toml"], BAD_OPTION, "missing.toml")
    expect_refused(program, ["--config", folder], BAD_OPTION, str(folder))
    refused("spin = \n", f"{path}:1:")
    refused("[log]\nlevel = 'info'\n[log]\n", f"{path}:3:")
    refused("\nspinn = '1us'\n", f"{path}:2:1", "spinn", "did you mean 'spin'?")
    refused("listen = 7400\n", f"{path}:1:10", "listen", "text")
    refused("[log]\nlevel = 'chatty'\n", f"{path}:2:", "log-level", "info, warning, error")
    refused("listen = '7400'\n", "7400")
    refused("spin = -1\n", f"{path}:1:8", "spin", "a duration such as")
    refused("spin = '-1s'\n", f"{path}:1:8", "spin", "a duration such as")
    refused("spin = '01s'\n", f"{path}:1:8", "spin", "a duration such as")
    refused("config = 'other.toml'\n", "config")

    path.write_text("listen = 'tcp://127.0.0.1:7999'\n[log]\nlevel = 'warning'\n")
    arguments = ["--config", path, "--print-config", "--listen", "tcp://127.0.0.1:7998"]
    printed = run(program, *arguments)
    expect(printed.returncode == STOPPED and 'log-level = "warning"' in printed.stdout, f"the file counts: {printed}")
    expect('listen = "tcp://127.0.0.1:7998"' in printed.stdout, "the command line has precedence")
    as_json = json.loads(run(program, *arguments, "--json").stdout)
    expect(as_json["log-level"] == "warning" and as_json["spin"] == "100us", f"--json: {as_json}")
    path.write_text(printed.stdout)
    again = run(program, "--config", path, "--print-config")
    expect(again.stdout == printed.stdout, f"a printed configuration file reads back unchanged: {again}")


def check_numbers(program):
    """Every number, size and duration on the command line has a range and the common syntax."""
    options = json.loads(run(program, "--print-config", "--json").stdout)
    numbers = [name for name, value in options.items() if isinstance(value, (int, float)) and
               not isinstance(value, bool) or re.fullmatch(r"\d+([KMGT]iB|ns|us|ms|s|min|h)", str(value))]
    expect(len(numbers) > 8, f"options that are numbers: {numbers}")
    for name in numbers:
        for bad in ("-1", "18446744073709551616", "", "010"):
            result = run(program, "--check-config", f"--{name}", bad)
            expect(result.returncode == BAD_OPTION, f"--{name} '{bad}' is refused: {result}")
            expect(re.search(f"--{name}: expected .* from .* to .*, not '{bad}'", result.stderr), f"{bad}: {result}")


def check_outputs(program, arguments, folder):
    """A program reports output that it cannot write, and never uses a closed standard descriptor for another file."""
    for mode in (["--help"], ["--version"], ["--check-config"], ["--print-config"], ["--print-config", "--json"]):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([program, *mode], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        expect(result.returncode == FAILED and "No space left on device" in result.stderr, f"{mode}: {result}")
        result = subprocess.run([program, *mode], capture_output=True, text=True, check=False,
                                preexec_fn=lambda: os.close(1))
        expect(result.returncode == FAILED and "EBADF" in result.stderr, f"{mode} without an output: {result}")
    log = pathlib.Path(folder) / "closed.log"
    process = subprocess.Popen([program, *map(str, arguments), "--log-file", str(log)],
                               preexec_fn=lambda: os.closerange(0, 3))
    try:
        wait_for_line(process, log, "serving at")
        for fd in range(3):
            expect(os.readlink(f"/proc/{process.pid}/fd/{fd}") == "/dev/null", f"descriptor {fd} is on /dev/null")
        process.terminate()
        expect(process.wait(DEADLINE_S) == STOPPED, "it serves and stops without standard streams")
    finally:
        process.kill()
        process.wait()


def check_descriptor_limit(program, arguments):
    result = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=DEADLINE_S,
                            check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8)))
    expect(result.returncode == FAILED, f"the program does not start with 8 descriptors: {result}")
    expect("may open only 8 files" in result.stderr and "ulimit -n" in result.stderr, f"the error says why: {result}")


def wait_for_line(process, log, text):
    deadline = time.monotonic() + DEADLINE_S
    while not (log.exists() and text in log.read_text()):
        expect(time.monotonic() < deadline and process.poll() is None, f"the program logs '{text}' into its file")
        time.sleep(0.01)  # poll interval


def check_ports(program, arguments):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        expect_refused(program, [*arguments, "--listen", f"tcp://127.0.0.1:{port}"], FAILED, str(port), "in use")
        expect_refused(program, [*arguments, "--admin", f"127.0.0.1:{port}"], FAILED, str(port), "in use")
    expect_refused(program, [*arguments, "--log-file", "/dev/null/log"], BAD_OPTION, "/dev/null/log")


def check_signals(program, arguments, folder):
    for number in (signal.SIGTERM, signal.SIGINT):
        with Server(program, *arguments) as server:
            expect("listen=tcp://127.0.0.1:0" in server.lines[0], f"effective options are logged: {server.lines}")
            maps = pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
            expect("libjemalloc" in maps, "the program uses the malloc of jemalloc")
            socket.create_connection(("127.0.0.1", server.port), timeout=5).close()
            expect(server.end(number) == STOPPED, f"signal {number} stops the program: {server.lines}")
            expect("stopped" in server.lines[-1], f"the last log line reports the end: {server.lines}")
    log = pathlib.Path(folder) / "server.log"
    process = subprocess.Popen([program, *map(str, arguments), "--log-file", str(log)])
    try:
        wait_for_line(process, log, "serving at")
        process.terminate()
        expect(process.wait(DEADLINE_S) == STOPPED and "stopped" in log.read_text(), "the log file has the end")
    finally:
        process.kill()
        process.wait()


def check_second_signal(program, arguments, folder):
    held = {"LOAM_PAUSE": f"program.stopping=block:{folder}/never"}
    with Server(program, *arguments, env=held) as server:
        server.process.send_signal(signal.SIGTERM)
        for line in server.process.stdout:
            if "paused at program.stopping" in line:
                break
        else:
            expect(False, "the program begins to stop")
        expect(server.end(signal.SIGTERM) == 128 + signal.SIGTERM, "a second signal ends the program at once")


def check_supervisor(program, arguments, folder, watched):
    """Plays systemd: the program tells when it serves and stops. Its watchdog is fed if it is `watched`."""
    path = str(pathlib.Path(folder) / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(path)
        supervisor.settimeout(DEADLINE_S)
        # The watchdog of another process than this one would be ignored, so WATCHDOG_PID is absent.
        with Server(program, *arguments, env={"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "400000"}) as server:
            first = supervisor.recv(1_000).decode()
            expect(first.startswith("READY=1\nSTATUS=serving at tcp://"), f"it tells that it serves: {first}")
            for _ in range(3 if watched else 0):
                fed = supervisor.recv(1_000)
                expect(fed == b"WATCHDOG=1", f"an idle server feeds its watchdog: {fed}")
            server.process.send_signal(signal.SIGTERM)
            while (last := supervisor.recv(1_000)) == b"WATCHDOG=1" and watched:
                pass
            expect(last.startswith(b"STOPPING=1"), f"it tells that it stops: {last}")
            expect(server.wait() == STOPPED, "it ends")


def check(program, name, arguments, watched):
    """Runs all checks. `arguments` make the program listen on free ports of the loopback interface. `watched`: a
    watchdog may end the program."""
    with tempfile.TemporaryDirectory() as folder:
        check_options(program, name)
        check_config_file(program, folder)
        check_numbers(program)
        check_outputs(program, arguments, folder)
        check_descriptor_limit(program, arguments)
        check_ports(program, arguments)
        check_signals(program, arguments, folder)
        check_second_signal(program, arguments, folder)
        check_supervisor(program, arguments, folder, watched)
