"""Tests that every installed header compiles alone by g++, and all of them together by clang, with the installed tree
only; and that internal headers are not installed."""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from installed import CLANG, fail, install, pkg_config  # noqa: E402

BUILD = pathlib.Path(sys.argv[1]).resolve().parents[1]
INTERNAL = ("recoverer.h", "client_impl.h", "engine.h")


def compile_headers(compiler, flags, headers):
    """Compiles one source that includes `headers`. Returns the compiler's errors, or an empty text."""
    # -pedantic-errors would refuse __int128, which the library asks for with -std=gnu++20.
    command = [compiler, "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *flags, "-x", "c++", "-"]
    source = "".join(f'#include "{header}"\n' for header in headers)
    done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=120)
    return f"{compiler}: {', '.join(map(str, headers))}\n{done.stderr}" if done.returncode != 0 else ""


def main():
    if CLANG is None:
        print("clang is not installed: only g++ is tested")
    with tempfile.TemporaryDirectory() as scratch:
        prefix = pathlib.Path(scratch)
        install(BUILD, prefix)
        headers = sorted((prefix / "include").rglob("*.h"))
        if not any(h.name == "client.h" for h in headers):
            fail("the client's headers are not installed")
        for header in headers:
            if header.name in INTERNAL:
                fail(f"{header.name} is installed, and is not public")
        flags = pkg_config(prefix, "--cflags")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            jobs = [pool.submit(compile_headers, "g++", flags, [header]) for header in headers]
            if CLANG:
                jobs.append(pool.submit(compile_headers, CLANG, flags, headers))
            failures = [job.result() for job in jobs if job.result()]
    if failures:
        fail("headers do not compile alone:\n" + "\n".join(failures))
    print(f"ok: {len(headers)} headers")


main()
