"""Starts a PostgreSQL server of its own, and runs a program of differential tests (postgres.h), which asks it.
Arguments: the program, then arguments for the program, such as --gtest_filter=Comparison.*

The test is skipped if PostgreSQL is not installed; scripts/setup installs it."""

import contextlib
import os
import pathlib
import shlex
import subprocess
import sys

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "common/testing"))

import postgres_server  # noqa: E402

SKIPPED = 77
# Times are those of UTC, and texts of dates have the form of ISO 8601.
SETTINGS = {"TimeZone": "UTC", "DateStyle": "ISO, YMD", "jit": "off"}


def main():
    why = postgres_server.reason_unusable()
    if why:
        print(f"SKIPPED: {why}")
        sys.exit(SKIPPED)
    with contextlib.ExitStack() as stack:
        server = postgres_server.Server(stack, SETTINGS)
        server.sql((HERE / "answers.sql").read_text())
        print(f"PostgreSQL {server.version()}", flush=True)
        environment = os.environ | {"LOAM_PSQL": shlex.join(server.psql())}
        sys.exit(subprocess.run(sys.argv[1:], env=environment).returncode)


if __name__ == "__main__":
    main()
