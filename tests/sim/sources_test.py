"""Tests that loam-sim contains every source of the servers and of the client library, and no test double.

The test asks ninja for the sources that a build directory links. Each library of the product has a twin in the
simulator, which has the same sources compiled for the simulated environment. The tables below list the exceptions and
their reasons.
"""

import collections
import json
import re
import pathlib
import subprocess
import sys

SERVERS = ("bin/loam-storage-node", "bin/loam-commit-manager")
# A program that links the client library. Its libraries outside of PRODUCT_FOLDERS are not checked.
CLIENT = "bin/loam"
SIMULATOR = "tests/sim/loam-sim"

# Libraries without a twin, each with the reason.
WITHOUT_TWIN = {
    "loam-storage-node": "main(): reads options and owns the StorageNode that the simulator owns instead",
    "loam-commit-manager": "main(): reads options and owns the CommitManager that the simulator owns instead",
    "loam_program_support": "options, signals and log files of main()",
    "loam_command": "options of command-line programs",
    "loam_net_rdma": "verbs: the same reason as for loam_net_tcp",
    "loam_net_tcp": "sockets: streams in memory take their place, below frames, credits and links",
    "loam_admin": "gRPC has threads and sockets of its own; administration calls what the simulator calls directly",
    "loam_storage_admin": "the same reason as for loam_admin",
    "loam_commit_admin": "the same reason as for loam_admin",
    "loam_admin_proto": "generated code of the administration",
    "loam_storage_proto": "generated code of the administration",
    "loam_commit_proto": "generated code of the administration",
}
# Sources that only the product's library has (REAL_ONLY), or only its twin (SIM_ONLY).
REAL_ONLY = {
    "common/net/make_transport_real.cc": "chooses TCP",
    "common/fiber/switcher.cc": "one scheduler a thread; in the simulator many schedulers share one",
    "common/fiber/stack_overflow_reporter.cc": "a handler of SIGSEGV",
    "commit-manager/src/admin/admin_server.cc": "gRPC",
    "storage-node/src/admin/admin_server.cc": "gRPC",
}
SIM_ONLY = {
    "common/base/env_sim.cc": "where the simulated environment is installed",
    "common/net/simulated/sim_network.cc": "the simulated network",
    "common/net/simulated/sim_transport.cc": "the simulated network",
    "common/net/make_transport_sim.cc": "chooses the simulated network",
    "common/fiber/switcher_sim.cc": "see switcher.cc",
    "commit-manager/src/admin/admin_server_sim.cc": "no administration over gRPC",
    "storage-node/src/admin/admin_server_sim.cc": "no administration over gRPC",
}
# The simulator's own sources: neither product nor test double.
OWN_FOLDERS = ("tests/sim/", "common/testing/")
# Gives tests and the simulator access to parts of the product, and replaces none of them.
ACCESS = "client-lib/testing/open_tree_store.h"
PRODUCT_FOLDERS = ("common/", "storage-node/", "commit-manager/", "bdtree/", "client-lib/")
DOUBLE = re.compile(r"(_test\b|_test[._]|fixture|scripted|harness|dead_test|thesis_order|^[a-z-]+/testing/)")


def ninja(build, *arguments):
    return subprocess.run(["ninja", "-C", build, *arguments], capture_output=True, text=True, check=True).stdout


def sources(build, program):
    """Returns {target: {source}} of all objects that the program links. Sources are relative to the tree."""
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
    """Returns the sources of a batch (LOAM_UNITY in cmake/loam.cmake), or the source itself."""
    if "/batches/" not in source:
        return {source}
    return set(re.findall(r'#include "([^"]+)"', (build / source).read_text()))


def generated(source):
    return "/proto/" in source


def findings(real, simulated, commands):
    """Returns one line for each error. `commands`: {(target, source): compiler command}."""
    wrong = []
    for library in sorted(real):
        twin = f"{library}_sim"
        if library in WITHOUT_TWIN:
            if twin in simulated:
                wrong.append(f"{library} has a twin in loam-sim; remove it from WITHOUT_TWIN")
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
                wrong.append(f"{source} of {target} is in loam-sim, although it is a test double or a test")
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
    """Returns an error for each header of a test double that a source of the simulator includes. ninja knows the
    includes of sources that are built."""
    wrong = set()
    target = None
    for line in ninja(build, "-t", "deps").splitlines():
        if not line.startswith(" "):
            match = re.search(r"CMakeFiles/([^/]+)\.dir/", line)
            target = match[1] if match and match[1] in simulated else None
        elif target is not None and any(f"/{folder}" in line for folder in PRODUCT_FOLDERS):
            name = line.strip()
            double = DOUBLE.search(pathlib.Path(name).name) or "/testing/" in name
            if double and "/common/testing/" not in name and not name.endswith(ACCESS):
                wrong.add(f"{name} is included by a source of {target} in loam-sim")
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
            wrong.append(f"{source} does not exist; remove it from the list")
    for line in wrong:
        print(line)
    common = sum(len(files & simulated[f"{library}_sim"]) for library, files in real.items() if f"{library}_sim" in simulated)
    print(f"{common} sources of {len(real)} libraries are both in loam-sim and in the product; "
          f"{len(wrong)} findings")
    return 1 if wrong or common < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
