"""Runs DuckDB for loam-bench: loads order lines once, then sums their amounts over ranges of a field.

The Python of the virtual environment that benchmarks/peers/duckdb/setup creates runs this program. It reads commands
from standard input, one JSON object a line, and writes one line to standard output for each command. The first line of
the output is the version:

    {"duckdb": "2.0.0"}

    {"load": "/tmp/columns"}
    {"rows": 4000000}
    {"cores": [1], "threads": 1, "field": "delivered", "ranges": [[0, 500], [200, 900]], "form": "separate"}
    {"seconds": 0.02, "sums": [1234, 5678]}

`load` names a folder with one file for each column, which has the values one after another (COLUMNS). `form` is
`separate`, with one statement for each range, or `filter`, with one statement for all ranges. With `limit_seconds`, the
program cancels a command that takes longer: {"seconds": 1.5, "gave_up": true}. A command that fails gets the reply
{"error": "…"}. The program ends at the end of its input.

    python sums.py [--check]

--check prints nothing and ends with exit code 0 if DuckDB can be used, else 3.
"""

import json
import os
import pathlib
import sys
import threading
import time

NOT_INSTALLED = 3
# Names of the table's columns and of their files, and their types as numpy calls them.
COLUMNS = (("order", "<i8"), ("item", "<i8"), ("delivered", "<i8"), ("amount", "<i8"), ("line", "<i4"),
           ("quantity", "<i4"), ("supplier", "<i4"))


def say(answer):
    print(json.dumps(answer), flush=True)


def run_on(cores):
    """Binds every thread of this process to the cores: the present threads of DuckDB, and this thread, from which later
    threads inherit it."""
    for thread in os.listdir("/proc/self/task"):
        try:
            os.sched_setaffinity(int(thread), cores)
        except ProcessLookupError:
            pass  # it has just ended


def condition(field, bounds):
    if field not in (name for name, _ in COLUMNS):
        raise ValueError(f"no column '{field}'")
    low, high = bounds
    return f'"{field}" >= {int(low)} AND "{field}" < {int(high)}'


def statements_of(form, field, ranges):
    if form == "separate":
        return [f"SELECT sum(amount) FROM lines WHERE {condition(field, bounds)}" for bounds in ranges]
    if form == "filter":
        sums = ", ".join(f"sum(amount) FILTER (WHERE {condition(field, bounds)})" for bounds in ranges)
        return [f"SELECT {sums} FROM lines"]
    raise ValueError(f"no form '{form}': 'separate' or 'filter'")


class Lines:
    """The table in memory, and the connection to it."""

    def __init__(self, duckdb, numpy):
        self.duckdb = duckdb
        self.numpy = numpy
        self.connection = duckdb.connect()

    def load(self, folder):
        arrays = {name: self.numpy.fromfile(pathlib.Path(folder) / name, dtype=kind) for name, kind in COLUMNS}
        if len({len(array) for array in arrays.values()}) != 1:
            raise ValueError(f"columns of different lengths: { {name: len(a) for name, a in arrays.items()} }")
        self.connection.register("arrays", arrays)
        self.connection.execute("CREATE OR REPLACE TABLE lines AS SELECT * FROM arrays")
        self.connection.unregister("arrays")
        return {"rows": self.connection.execute("SELECT count(*) FROM lines").fetchone()[0]}

    def sums(self, command):
        statements = statements_of(command["form"], command["field"], command["ranges"])
        run_on(command["cores"])
        self.connection.execute(f"SET threads={int(command['threads'])}")
        run_on(command["cores"])
        limit = command.get("limit_seconds")
        watch = threading.Timer(limit, self.connection.interrupt) if limit else None
        if watch:
            watch.start()
        begin = time.perf_counter()
        try:
            sums = []
            for statement in statements:
                sums.extend(self.connection.execute(statement).fetchone())
                if limit and time.perf_counter() - begin > limit:
                    return {"seconds": time.perf_counter() - begin, "gave_up": True}
            seconds = time.perf_counter() - begin
        except self.duckdb.InterruptException:
            return {"seconds": time.perf_counter() - begin, "gave_up": True}
        finally:
            if watch:
                watch.cancel()
                watch.join()
        return {"seconds": seconds, "sums": [0 if s is None else int(s) for s in sums]}  # None: no row

    def answer(self, command):
        if "load" in command:
            return self.load(command["load"])
        return self.sums(command)


def main():
    try:
        import duckdb
        import numpy
        lines = Lines(duckdb, numpy)
    except ImportError as error:
        if "--check" not in sys.argv:
            say({"error": f"Python cannot use DuckDB: {error}"})
        sys.exit(NOT_INSTALLED)
    if "--check" in sys.argv:
        return
    say({"duckdb": duckdb.__version__})
    for line in sys.stdin:
        try:
            say(lines.answer(json.loads(line)))
        except (duckdb.Error, KeyError, OSError, TypeError, ValueError) as error:
            say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
