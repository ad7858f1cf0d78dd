"""Runs DuckDB for loam-bench: loads a table once, then executes statements and measures their time.

The Python of the virtual environment that benchmarks/peers/duckdb/setup creates runs this program. It reads commands
from standard input, one JSON object a line, and writes one line to standard output for each command. The first line of
the output is the version:

    {"duckdb": "2.0.0"}

    {"load": "/tmp/rows", "table": "lines", "columns": [["order", "BIGINT"], ["price", "DECIMAL(15,2)"]]}
    {"rows": 4000000}
    {"cores": [1], "threads": 1, "statements": ["SELECT sum(price) FROM lines", "SELECT max(price) FROM lines"]}
    {"seconds": 0.02, "rows": [[["1234.50"]], [["99.00"]]]}

`load` names a file with a line for each row: the values of its columns as texts, with | between them. The table is in
memory, in the order of the file, and replaces one of the same name. `statements` run one after another on one
connection. `rows` has the rows of each statement; a row has the texts of its values, with null for NULL. `seconds` is
the time from before the first statement is parsed until the last row is fetched. With `limit_seconds`, the program
cancels a command that takes longer: {"seconds": 1.5, "gave_up": true}. A command that fails gets the reply
{"error": "…"}. The program ends at the end of its input.

    python statements.py [--check]

--check prints nothing and ends with exit code 0 if DuckDB can be used, else 3.
"""

import decimal
import json
import os
import sys
import threading
import time

NOT_INSTALLED = 3


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


def quoted_name(name):
    return '"' + name.replace('"', '""') + '"'


def quoted_text(text):
    return "'" + text.replace("'", "''") + "'"


def text_of(value):
    """A value as a text; a decimal with all digits of its scale and without an exponent."""
    if value is None:
        return None
    return format(value, "f") if isinstance(value, decimal.Decimal) else str(value)


class Database:
    """Tables in memory, and the connection to them."""

    def __init__(self, duckdb):
        self.duckdb = duckdb
        self.connection = duckdb.connect()

    def load(self, command):
        columns = ", ".join(f"{quoted_text(name)}: {quoted_text(kind)}" for name, kind in command["columns"])
        table = quoted_name(command["table"])
        self.connection.execute(
            f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM read_csv({quoted_text(command['load'])}, "
            f"columns = {{{columns}}}, auto_detect = false, header = false, delim = '|', quote = '', escape = '')")
        return {"rows": self.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]}

    def execute(self, command):
        statements = command["statements"]
        if not isinstance(statements, list):
            raise ValueError("'statements' must be a list")
        run_on(command["cores"])
        self.connection.execute(f"SET threads={int(command['threads'])}")
        run_on(command["cores"])
        limit = command.get("limit_seconds")
        watch = threading.Timer(limit, self.connection.interrupt) if limit else None
        if watch:
            watch.start()
        begin = time.perf_counter()
        try:
            results = []
            for statement in statements:
                results.append(self.connection.execute(statement).fetchall())
                if limit and time.perf_counter() - begin > limit:
                    return {"seconds": time.perf_counter() - begin, "gave_up": True}
            seconds = time.perf_counter() - begin
        except self.duckdb.InterruptException:
            return {"seconds": time.perf_counter() - begin, "gave_up": True}
        finally:
            if watch:
                watch.cancel()
                watch.join()
        return {"seconds": seconds, "rows": [[[text_of(value) for value in row] for row in rows] for rows in results]}

    def answer(self, command):
        return self.load(command) if "load" in command else self.execute(command)


def main():
    try:
        import duckdb
        database = Database(duckdb)
    except ImportError as error:
        if "--check" not in sys.argv:
            say({"error": f"Python cannot use DuckDB: {error}"})
        sys.exit(NOT_INSTALLED)
    if "--check" in sys.argv:
        return
    say({"duckdb": duckdb.__version__})
    for line in sys.stdin:
        try:
            say(database.answer(json.loads(line)))
        except (duckdb.Error, KeyError, OSError, TypeError, ValueError) as error:
            say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
