"""Functions for tests that install the client library, build programs with it, and run them with a cluster."""

import contextlib
import os
import re
import shutil
import subprocess
import sys

# The newest clang first. A machine without clang tests g++ only, and says so.
CLANG = next((name for name in ("clang++-19", "clang++") if shutil.which(name)), None)


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def run(*command, **options):
    """Runs a command and returns its output; ends the test if the command fails."""
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **options)
    if result.returncode != 0:
        fail(f"exit code {result.returncode} of {' '.join(str(c) for c in command)}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def install(build, prefix, component="client"):
    run("cmake", "--install", build, "--prefix", prefix, "--component", component)


def pkg_config(prefix, *questions):
    config = next(prefix.rglob("loam.pc")).parent
    return run("pkg-config", *questions, "loam", env={**os.environ, "PKG_CONFIG_PATH": str(config)}).split()


# Long leases, because on a busy machine a client may not run for seconds. These tests do not test leases.
LEASES = ("--client-lease", "1min", "--node-lease", "1min", "--max-transaction-age", "10min")


def _serve(*command):
    """Starts a server and returns its process and its address."""
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    for line in process.stdout:
        lines.append(line)
        found = re.search(r"serving at (tcp://127\.0\.0\.1:\d+)", line)
        if found:
            return process, found.group(1)
    fail(f"{command} does not start: {lines}")


@contextlib.contextmanager
def cluster(manager, node, memory="64MiB"):
    """Starts a commit manager with one storage node and yields its address."""
    servers = []
    try:
        process, address = _serve(manager, "--listen", "tcp://127.0.0.1:0", "--admin", "", *LEASES)
        servers.append(process)
        process, _ = _serve(node, "--manager", address, "--admin", "", "--memory", memory, "--page", "2MiB")
        servers.append(process)
        yield address
    finally:
        for server in reversed(servers):
            server.terminate()
            server.communicate(timeout=20)
