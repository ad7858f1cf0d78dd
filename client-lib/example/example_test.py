"""The library as its users meet it: installed under a prefix, found by find_package and by pkg-config, in a program
that is built outside of the tree and talks to a cluster of processes."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

MANAGER, NODE = sys.argv[1:3]
BUILD = pathlib.Path(MANAGER).resolve().parents[1]
EXAMPLE = pathlib.Path(__file__).resolve().parent


def run(*command, **options):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **options)
    if result.returncode != 0:
        print(f"FAILED: {command}\n{result.stdout}\n{result.stderr}")
        sys.exit(1)
    return result.stdout


def serve(*command):
    """Starts a server; its process and the address that it serves at."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    for line in process.stdout:
        lines.append(line)
        found = re.search(r"serving at (tcp://127\.0\.0\.1:\d+)", line)
        if found:
            return process, found.group(1)
    print(f"FAILED: {command} does not start: {lines}")
    sys.exit(1)


def expect_sum(program, address):
    output = run(program, address)
    if output != "all accounts together: 150\n":
        print(f"FAILED: {program} prints {output!r}")
        sys.exit(1)


def with_cluster(program):
    servers = []
    try:
        manager, address = serve(MANAGER, "--listen", "tcp://127.0.0.1:0", "--admin", "")
        servers.append(manager)
        node, _ = serve(NODE, "--manager", address, "--admin", "", "--memory", "64MiB", "--page", "2MiB")
        servers.append(node)
        expect_sum(program, address)
    finally:
        for server in reversed(servers):
            server.terminate()
            server.communicate(timeout=20)


def main():
    with tempfile.TemporaryDirectory() as folder:
        prefix, build = pathlib.Path(folder) / "prefix", pathlib.Path(folder) / "build"
        run("cmake", "--install", BUILD, "--prefix", prefix, "--component", "client")
        if any(str(EXAMPLE.parents[1]) in p.read_text() for p in prefix.rglob("*.cmake")):
            print("FAILED: the installed package names folders of the source tree")
            sys.exit(1)

        run("cmake", "-S", EXAMPLE, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", build)
        with_cluster(build / "transfer")

        config = next(prefix.rglob("loam.pc")).parent
        flags = run("pkg-config", "--cflags", "--libs", "loam", env={**os.environ, "PKG_CONFIG_PATH": str(config)})
        by_pkg_config = pathlib.Path(folder) / "transfer"
        run("g++", EXAMPLE / "transfer.cc", "-o", by_pkg_config, *flags.split())
        with_cluster(by_pkg_config)
    print("ok")


main()
