"""Tests which files `cmake --install` installs for each component, and that the installed programs run."""

import pathlib
import re
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(sys.argv[1]).resolve().parents[1]
# Component → patterns of the files that it must install. It must install no others.
COMPONENTS = {
    "client": (
        r"include/loam/client/\w+\.h",
        r"include/loam/common/(base|expression|latency|net/transport|schema|wire)/\w+\.h",
        r"lib[/\w-]*/libloam_\w+\.a",
        r"lib[/\w-]*/cmake/loam/loam(Config|ConfigVersion|Targets|Targets-noconfig)\.cmake",
        r"lib[/\w-]*/pkgconfig/loam\.pc",
    ),
    "server": (r"bin/loam-commit-manager", r"bin/loam-storage-node"),
    "tools": (r"bin/loam", r"bin/loam-bench", r"share/loam/README\.md", r"share/loam/flights-2013-01\.csv\.gz"),
    "rdma": (r"lib/loam/loam-rdma\.so",),
    "Unspecified": (),  # every file belongs to a component
}


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def run(*command):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        fail(f"exit code {result.returncode} of {command}\n{result.stdout}\n{result.stderr}")
    return result.stdout


def check_files(component, patterns, prefix):
    files = {str(p.relative_to(prefix)) for p in prefix.rglob("*") if not p.is_dir()}
    for pattern in patterns:
        found = {f for f in files if re.fullmatch(pattern, f)}
        if not found:
            fail(f"component {component} lacks {pattern}")
        files -= found
    if files:
        fail(f"component {component} installs files that its list does not name: {sorted(files)}")


def check_programs(prefix):
    """Checks that each program prints its help and version and does not depend on the build folder. Returns their
    number."""
    programs = sorted((prefix / "bin").iterdir())
    for program in programs:
        if "loam" not in run(program, "--help").lower():
            fail(f"{program.name} --help does not name Loam")
        version = run(program, "--version")
        if not re.search(r"\d+\.\d+\.\d+", version):
            fail(f"{program.name} --version prints {version!r}")
        if str(BUILD) in run("readelf", "-d", program):
            fail(f"{program.name} looks for libraries in the build folder")
    return len(programs)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        together = pathlib.Path(scratch) / "all"
        for component, patterns in COMPONENTS.items():
            prefix = pathlib.Path(scratch) / component
            prefix.mkdir()
            run("cmake", "--install", BUILD, "--prefix", prefix, "--component", component)
            check_files(component, patterns, prefix)
            if component in ("server", "tools"):
                run("cmake", "--install", BUILD, "--prefix", together, "--component", component)
        print(f"ok: {check_programs(together)} programs")


main()
