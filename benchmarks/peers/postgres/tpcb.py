"""Runs PostgreSQL for loam-bench: pgbench's TPC-B-like transactions on a server that this program starts.

The program reads commands from standard input, one JSON object a line, and writes one line to standard output for each
command. The first line of the output is the version:

    {"postgres": "15.8"}

    {"branches": 64, "accounts": 10000}
    {"rows": 640000}
    {"clients": 16, "seconds": 2, "seed": 1}
    {"per_second": 4400.5, "transactions": 8801, "latency_ms": 3.6}

The command with `branches` fills the tables: 10 tellers and `accounts` accounts for each branch. The tables are
unlogged, the server never forces data to the disk, statements are prepared, and connections use a Unix socket. After
each measurement, the program checks that the sums of all tables agree, and that the history has as many rows as pgbench
reports transactions. Then it vacuums the tables; autovacuum is off, so that the server does not vacuum during a
measurement. A command that fails gets the reply {"error": "…"}. The program ends at the end of its input or by SIGTERM.
It then ends the server and removes its folder.

    python3 tpcb.py [--check]

--check prints nothing and ends with exit code 0 if PostgreSQL can be used, else 3.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "common/testing"))

import postgres_server  # noqa: E402

NOT_INSTALLED = 3
TELLERS = 10  # for each branch
MAX_ACCOUNTS = 100_000_000

SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "1h",
}

TABLES = """
CREATE UNLOGGED TABLE branches (bid int PRIMARY KEY, bbalance int, filler char(88)) WITH (fillfactor=100);
CREATE UNLOGGED TABLE tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84)) WITH (fillfactor=100);
CREATE UNLOGGED TABLE accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84)) WITH (fillfactor=100);
CREATE UNLOGGED TABLE history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
INSERT INTO branches SELECT b, 0, '' FROM generate_series(1, {branches}) b;
INSERT INTO tellers SELECT t, (t - 1) / {tellers} + 1, 0, '' FROM generate_series(1, {branches} * {tellers}) t;
INSERT INTO accounts SELECT a, (a - 1) / {accounts} + 1, 0, '' FROM generate_series(1, {branches} * {accounts}) a;
"""

# pgbench's own script "tpcb-like", with another number of accounts.
TRANSACTION = """
\\set aid random(1, {accounts} * {branches})
\\set bid random(1, {branches})
\\set tid random(1, {tellers} * {branches})
\\set delta random(-5000, 5000)
BEGIN;
UPDATE accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM accounts WHERE aid = :aid;
UPDATE tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""

SUMS = """SELECT (SELECT sum(abalance) FROM accounts), (SELECT sum(tbalance) FROM tellers),
(SELECT sum(bbalance) FROM branches), (SELECT coalesce(sum(delta), 0) FROM history), (SELECT count(*) FROM history)"""


def say(answer):
    print(json.dumps(answer), flush=True)


def reason_unusable():
    """Returns the reason why PostgreSQL cannot be used, or None if it can."""
    no_pgbench = None if shutil.which("pgbench") else "pgbench is not installed; scripts/setup installs it"
    return postgres_server.reason_unusable() or no_pgbench


class Server(postgres_server.Server):
    """A server with the tables of TPC-B."""

    def __init__(self, stack):
        super().__init__(stack, SETTINGS)
        self.transactions = 0
        self.script = self.folder / "transaction.sql"

    def fill(self, command):
        sizes = {"branches": int(command["branches"]), "accounts": int(command["accounts"]), "tellers": TELLERS}
        if not 1 <= sizes["branches"] * sizes["accounts"] <= MAX_ACCOUNTS:
            raise ValueError(f"between 1 and {MAX_ACCOUNTS} accounts in all")
        self.sql("DROP TABLE IF EXISTS branches, tellers, accounts, history")
        self.sql(TABLES.format(**sizes))
        self.sql("VACUUM ANALYZE")
        self.script.write_text(TRANSACTION.format(**sizes))
        self.script.chmod(0o644)
        self.transactions = 0
        return {"rows": int(self.sql("SELECT count(*) FROM accounts"))}

    def pgbench(self, clients, seconds, seed):
        """Runs pgbench once. Returns the number of its transactions, and the rest of what it reports."""
        text = self.run("pgbench", "-n", "-M", "prepared", "-c", clients, "-j", min(clients, os.cpu_count() or 1),
                        "-T", seconds, "-f", self.script, f"--random-seed={seed}", "-h", self.folder,
                        "-U", postgres_server.USER, "postgres")
        return int(re.search(r"number of transactions actually processed: (\d+)", text)[1]), text

    def measure(self, command):
        clients, seconds = int(command["clients"]), int(command["seconds"])
        # On a busy machine no transaction may end in this time. pgbench then reports no rate.
        for longer in (1, 2, 4, 8, 16):
            done, text = self.pgbench(clients, seconds * longer, int(command["seed"]))
            if done != 0:
                break
        else:
            raise ValueError(f"no transaction of PostgreSQL ended within {seconds * longer} s")
        self.transactions += done
        self.check()
        self.sql("VACUUM")
        return {"per_second": float(re.search(r"tps = ([\d.]+) \(without initial connection time\)", text)[1]),
                "transactions": done, "latency_ms": float(re.search(r"latency average = ([\d.]+) ms", text)[1])}

    def check(self):
        *sums, rows = map(int, self.sql(SUMS).split("|"))
        if len(set(sums)) != 1 or rows != self.transactions:
            raise ValueError(f"after {self.transactions} transactions the history has {rows}, and the sums are {sums}")

    def answer(self, command):
        return self.fill(command) if "branches" in command else self.measure(command)


def main():
    why = reason_unusable()
    if "--check" in sys.argv:
        sys.exit(NOT_INSTALLED if why else 0)
    if why:
        say({"error": why})
        sys.exit(NOT_INSTALLED)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # so that the server ends, too
    with contextlib.ExitStack() as stack:
        try:
            server = Server(stack)
            say({"postgres": server.version()})
        except (OSError, RuntimeError) as error:
            say({"error": str(error)})
            sys.exit(NOT_INSTALLED)
        for line in sys.stdin:
            try:
                say(server.answer(json.loads(line)))
            except (KeyError, OSError, RuntimeError, TypeError, ValueError) as error:
                say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
