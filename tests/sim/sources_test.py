"""loam-sim is the product: every source that the servers and the client library are made of is in it, and no double of one.

What a build directory really links is asked of ninja. A library of the product has a twin in the simulator, the same
sources compiled against the simulated environment; what differs is named below, with the reason.
"""

import collections
import json
import re
import pathlib
import subprocess
import sys

SERVERS = ("bin/loam-storage-node", "bin/loam-commit-manager")
# Links the client library; what else it is made of is not the product's core.
CLIENT = "bin/loam"
SIMULATOR = "tests/sim/loam-sim"

# Libraries that have no twin.
WITHOUT_TWIN = {
    "loam-storage-node": "main(): reads options and owns the StorageNode that the simulator owns instead",
    "loam-commit-manager": "main(): the same for the CommitManager",
    "loam_program_support": "options, signals and log files of main()",
    "loam_command": "options of command-line programs",
    "loam_admin": "gRPC has threads and sockets of its own; administration calls what the simulator calls directly",
    "loam_storage_admin": "as loam_admin",
    "loam_commit_admin": "as loam_admin",
    "loam_admin_proto": "generated code of the administration",
    "loam_storage_proto": "generated code of the administration",
    "loam_commit_proto": "generated code of the administration",
}
# Sources of a library that only one of the two has.
REAL_ONLY = {
    "common/net/make_transport_real.cc": "chooses TCP",
    "common/net/name_lookup.cc": "names of hosts: as tcp_link.cc",
    "common/net/tcp_link.cc": "sockets: streams in memory take their place, below frames, credits and links",
    "common/net/tcp_socket.cc": "as tcp_link.cc",
    "common/net/tcp_transport.cc": "as tcp_link.cc",
    "common/net/waiter.cc": "sleeps in the kernel; the simulator's transports wait in the simulated clock",
    "common/net/rdma_load.cc": "verbs: as tcp_link.cc",
    "common/fiber/switcher.cc": "one scheduler a thread; in the simulator many schedulers share one",
    "common/fiber/overflow_report.cc": "a handler of SIGSEGV",
    "commit-manager/src/admin/admin_server.cc": "gRPC",
    "storage-node/src/admin/admin_server.cc": "gRPC",
}
SIM_ONLY = {
    "common/base/env_sim.cc": "where the simulated environment is installed",
    "common/net/make_transport_sim.cc": "chooses the simulated network",
    "common/fiber/switcher_sim.cc": "see switcher.cc",
    "commit-manager/src/admin/admin_server_sim.cc": "no administration over gRPC",
    "storage-node/src/admin/admin_server_sim.cc": "no administration over gRPC",
}
# Of the simulator itself: neither product nor double of it.
OWN_FOLDERS = ("tests/sim/", "common/testing/")
PRODUCT_FOLDERS = ("common/", "storage-node/", "commit-manager/", "bdtree/", "client-lib/")
DOUBLE = re.compile(r"(_test\b|_test[._]|fixture|scripted|harness|dead_test|test_peer|thesis_order)")


def ninja(build, *arguments):
    return subprocess.run(["ninja", "-C", build, *arguments], capture_output=True, text=True, check=True).stdout


def sources(build, program):
    """{target: {source}} of what the program links, sources relative to the tree."""
    found = collections.defaultdict(set)
    for line in ninja(build, "-t", "inputs", program).splitlines():
        match = re.match(r"(.*)/CMakeFiles/([^/]+)\.dir/(.*)\.o$", line)
        if match:
            folder, target, file = match.groups()
            parts = []
            for part in f"{folder}/{file}".split("/"):
                if part == "__":  # how CMake writes ..
                    parts.pop()
                else:
                    parts.append(part)
            found[target] |= unpacked(build, "/".join(parts))
    return found


def unpacked(build, source):
    """The sources of a batch (LOAM_UNITY in cmake/loam.cmake), or the source itself."""
    if "/batches/" not in source:
        return {source}
    return set(re.findall(r'#include "([^"]+)"', (build / source).read_text()))


def generated(source):
    return "/proto/" in source


def findings(real, simulated, commands):
    """What is wrong, a line each. `commands`: {(target, source): compiler command}."""
    wrong = []
    for library in sorted(real):
        twin = f"{library}_sim"
        if library in WITHOUT_TWIN:
            if twin in simulated:
                wrong.append(f"{library} has a twin in loam-sim after all; take it out of WITHOUT_TWIN")
            continue
        if twin not in simulated:
            wrong.append(f"{library} is in a product program, and its twin is not in loam-sim")
            continue
        for source in sorted(real[library] - simulated[twin]):
            if source not in REAL_ONLY and not generated(source):
                wrong.append(f"{source} of {library} is not in loam-sim")
        for source in sorted(simulated[twin] - real[library]):
            if source not in SIM_ONLY:
                wrong.append(f"{source} is in {twin}, but not in the product's {library}")
    product = set().union(*real.values())
    for target, files in sorted(simulated.items()):
        for source in sorted(files):
            if source.startswith(OWN_FOLDERS):
                if source in product:
                    wrong.append(f"{source} of the simulator is in a product program")
                continue
            if DOUBLE.search(source):
                wrong.append(f"{source} of {target} is in loam-sim: a double, or a test")
            if not target.endswith("_sim"):
                wrong.append(f"{source} is in loam-sim through {target}, which is not the twin of a library")
            elif source not in product and source not in SIM_ONLY:
                wrong.append(f"{source} of {target} is in loam-sim, and in no product program")
            command = commands.get((target, source))
            if command is not None and "-DLOAM_ENV_SIM=1" not in command:
                wrong.append(f"{source} of {target} is compiled against the real environment")
    return wrong


def compile_commands(build, root):
    commands = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        match = re.search(r"CMakeFiles/([^/ ]+)\.dir/", entry["command"])
        file = pathlib.Path(entry["file"])
        if match and file.is_relative_to(root):
            place = build if file.is_relative_to(build) else root
            for source in unpacked(build, file.relative_to(place).as_posix()):
                commands[match[1], source] = entry["command"]
    return commands


def headers_of_doubles(build, simulated):
    """Headers of test doubles that something in the simulator includes; known only of what is built."""
    wrong = set()
    target = None
    for line in ninja(build, "-t", "deps").splitlines():
        if not line.startswith(" "):
            match = re.search(r"CMakeFiles/([^/]+)\.dir/", line)
            target = match[1] if match and match[1] in simulated else None
        elif target is not None and any(f"/{folder}" in line for folder in PRODUCT_FOLDERS):
            name = line.strip()
            if DOUBLE.search(pathlib.Path(name).name) and "/common/testing/" not in name:
                wrong.add(f"{name} is included by something of {target} in loam-sim")
    return sorted(wrong)


def main():
    build = pathlib.Path(sys.argv[1])
    root = pathlib.Path(__file__).resolve().parents[2]
    real = collections.defaultdict(set)
    for program in (*SERVERS, CLIENT):
        for target, files in sources(build, program).items():
            if all(file.startswith(PRODUCT_FOLDERS) or generated(file) for file in files):
                real[target] |= files
    simulated = sources(build, SIMULATOR)
    wrong = findings(real, simulated, compile_commands(build, root)) + headers_of_doubles(build, simulated)
    for source in (*REAL_ONLY, *SIM_ONLY):
        if not (root / source).is_file():
            wrong.append(f"there is no {source} any more; take it out of the list")
    for line in wrong:
        print(line)
    common = sum(len(files & simulated[f"{library}_sim"]) for library, files in real.items() if f"{library}_sim" in simulated)
    print(f"{common} sources of {len(real)} libraries are in loam-sim as they are in the product; {len(wrong)} findings")
    return 1 if wrong or common < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
