"""Tests programs and shared objects that link the installed archives, built by g++ and by clang, with and without
link-time optimisation, against a cluster of processes."""

import concurrent.futures
import os
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
from installed import CLANG, cluster, fail, install, pkg_config, run  # noqa: E402

MANAGER, NODE = (pathlib.Path(path).resolve() for path in sys.argv[1:3])
BUILD = MANAGER.parents[1]
LEVELS = (("-O0",), ("-O1",), ("-O2",), ("-O3",), ("-O1", "-flto=auto"))


def programs(folder, prefix):
    """Returns the build commands, by the program that each of them builds."""
    cflags, libs = pkg_config(prefix, "--cflags"), pkg_config(prefix, "--libs")
    commands = {}
    for level in LEVELS:
        program = folder / ("large_commit" + "".join(level))
        commands[program] = ["g++", *level, *cflags, HERE / "large_commit.cc", "-o", program, *libs]
    if CLANG:
        program = folder / "large_commit-clang"
        commands[program] = [CLANG, "-O2", *cflags, HERE / "large_commit.cc", "-o", program, *libs]
    shared = ["-shared", "-fPIC", "-Wl,-z,defs"]
    plugin = folder / "plugin.so"
    commands[plugin] = ["g++", "-O2", *shared, *cflags, HERE / "plugin.cc", "-o", plugin, *libs]
    return commands


def plugin_by_cmake(folder, prefix):
    build = folder / "plugin"
    compiler = [f"-DCMAKE_CXX_COMPILER={CLANG}"] if CLANG else []
    run("cmake", "-S", HERE, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}", *compiler)
    run("cmake", "--build", build)
    return next(build.glob("*plugin.so"))


def expect_right(*command):
    output = run(*command)
    if output != "right\n":
        fail(f"{command} prints {output!r}")


def main():
    if CLANG is None:
        print("clang is not installed: only g++ is tested")
    with tempfile.TemporaryDirectory() as scratch:
        folder, prefix = pathlib.Path(scratch), pathlib.Path(scratch) / "prefix"
        install(BUILD, prefix)
        commands = programs(folder, prefix)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            by_cmake = pool.submit(plugin_by_cmake, folder, prefix)
            for made in [pool.submit(run, *command) for command in commands.values()]:
                made.result()
            plugins = [folder / "plugin.so", by_cmake.result()]
        host = folder / "load_plugin"
        run("g++", "-O1", HERE / "load_plugin.cc", "-o", host)
        with cluster(MANAGER, NODE, "256MiB") as address:
            for number, program in enumerate(p for p in commands if p.suffix != ".so"):
                expect_right(program, address, f"rows_{number}")
            for number, plugin in enumerate(plugins):
                expect_right(host, plugin, address, f"plugin_{number}")
    print("ok")


main()
