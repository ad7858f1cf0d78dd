"""Tests the library as users have it: installed under a prefix, and found by find_package and by pkg-config. The test
builds a program with the installed library outside of the tree, and runs it with a cluster of processes."""

import pathlib
import sys
import tempfile

EXAMPLE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(EXAMPLE.parent / "tests"))
from installed import cluster, fail, install, pkg_config, run  # noqa: E402

MANAGER, NODE = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
BUILD = MANAGER.parents[1]


def expect_sum(program):
    with cluster(MANAGER, NODE) as address:
        output = run(program, address)
    if output != "all accounts together: 150\n":
        fail(f"{program} prints {output!r}")


def main():
    with tempfile.TemporaryDirectory() as folder:
        prefix, build = pathlib.Path(folder) / "prefix", pathlib.Path(folder) / "build"
        install(BUILD, prefix)
        if any(str(EXAMPLE.parents[1]) in p.read_text() for p in prefix.rglob("*.cmake")):
            fail("the installed package names folders of the source tree")

        run("cmake", "-S", EXAMPLE, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}")
        run("cmake", "--build", build)
        expect_sum(build / "transfer")

        by_pkg_config = pathlib.Path(folder) / "transfer"
        flags = pkg_config(prefix, "--cflags", "--libs")
        run("g++", EXAMPLE / "transfer.cc", "-o", by_pkg_config, *flags)
        expect_sum(by_pkg_config)
    print("ok")


main()
