"""Tests client-lib/cmake/object_code.cmake: an installed archive loses the bytecode of link-time optimisation, and an
archive with bytecode only is refused."""

import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from installed import CLANG, fail, run  # noqa: E402

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "cmake" / "object_code.cmake"


def archive(folder, name, *flags):
    source = folder / "answer.cc"
    source.write_text("int answer() { return 42; }\n")
    run("g++", "-O2", "-g1", "-fPIC", "-flto=auto", *flags, "-c", source, "-o", folder / f"{name}.o")
    run("gcc-ar", "rcs", folder / f"lib{name}.a", folder / f"{name}.o")
    return folder / f"lib{name}.a"


def leave_object_code(path):
    command = ["cmake", f"-DARCHIVE={path}", "-DOBJCOPY=objcopy", "-DREADELF=readelf", "-P", str(SCRIPT)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def main():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        both = archive(folder, "both", "-ffat-lto-objects")
        if ".gnu.lto_" not in run("readelf", "-SW", both):
            fail("the compiler wrote no bytecode into the archive of this test")
        done = leave_object_code(both)
        if done.returncode != 0 or "lto" in run("readelf", "-SW", both) or "__gnu_lto" in run("nm", both):
            fail(f"the archive still has bytecode\n{done.stderr}")
        user = folder / "user.cc"
        user.write_text("int answer(); int main() { return answer() == 42 ? 0 : 1; }\n")
        for compiler in ["g++"] + ([CLANG] if CLANG else []):
            run(compiler, user, both, "-o", folder / "user")
            run(folder / "user")
        slim = archive(folder, "slim", "-fno-fat-lto-objects")
        refused = leave_object_code(slim)
        if refused.returncode == 0 or "-ffat-lto-objects" not in refused.stderr:
            fail(f"an archive with bytecode only is not refused\n{refused.stderr}")
    print("ok")


main()
