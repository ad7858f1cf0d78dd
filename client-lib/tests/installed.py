"""An installed client library, programs that are built against it, and a cluster of processes that they talk to."""

import contextlib
import os
import re
import shutil
import subprocess
import sys

# clang's newest version first; a machine without clang tests g++ alone, and says so.
CLANG = next((name for name in ("clang++-19", "clang++") if shutil.which(name)), None)


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def run(*command, **options):
    """Its output; ends the test if it fails."""
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **options)
    if result.returncode != 0:
        fail(f"exit code {result.returncode} of {' '.join(str(c) for c in command)}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def install(build, prefix, component="client"):
    run("cmake", "--install", build, "--prefix", prefix, "--component", component)


def pkg_config(prefix, *questions):
    config = next(prefix.rglob("loam.pc")).parent
    return run("pkg-config", *questions, "loam", env={**os.environ, "PKG_CONFIG_PATH": str(config)}).split()


# On a busy machine a client may not get the processor for seconds; these tests are about something else.
LEASES = ("--client-lease", "1min", "--node-lease", "1min", "--max-transaction-age", "10min")


def _serve(*command):
    """Starts a server; its process and the address that it serves at."""
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
    """The address of a commit manager with one storage node."""
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
