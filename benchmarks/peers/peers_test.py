"""Tests the comparison with memcached at a tiny size: both servers run, every reply is checked, and every figure is
reported.

Arguments: loam-commit-manager, loam-storage-node, loam-bench."""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
DEADLINE_S = 300
# No other program starts servers with exactly this memory, by which the test recognises its own servers.
MEMORY = 84 << 20
# If the load generator is busier than this, throughput and processor time measure its speed, not that of the server.
MOST_CLIENT_BUSY = 0.95


def expect(condition, what):
    if not condition:
        print(f"FAILED: {what}")
        sys.exit(1)


def run(bench, *arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "figures"
        result = subprocess.run([bench, *arguments, "--quick", "--json", str(path)], capture_output=True, text=True,
                                timeout=DEADLINE_S)
        expect(result.returncode == 0, f"{arguments}: {result}")
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return {row["figure"]: row for row in rows}


def main():
    bench = sys.argv[3]
    if shutil.which("memcached") is None:
        print("SKIPPED: memcached is not installed; scripts/setup installs it")
        sys.exit(SKIPPED)
    rows = run(bench, "peers", "--records", "2000", "--memory", str(MEMORY), "--connections", "1,3", "--in-flight",
               "1,16", "--turn-ms", "5")
    if any("needs two cores" in row.get("reason", "") for row in rows.values()):
        print("SKIPPED: one core only")
        sys.exit(SKIPPED)
    expect(len(rows) == 3 * 4 * 3, f"three figures of each shape: {sorted(rows)}")
    for mix in ("get", "put", "half"):
        for shape in ("1x1", "1x16", "3x1", "3x16"):
            row = rows[f"peers.{mix}_{shape}.cpu_ratio"]
            busy = max(row["options"][server]["client_busy"] for server in ("node", "memcached"))
            for ratio in (row, rows[f"peers.{mix}_{shape}.rate_ratio"]):
                if busy > MOST_CLIENT_BUSY:
                    expect(ratio["value"] is None and "load generator" in ratio["reason"], f"void: {ratio}")
                else:
                    expect(ratio["value"] > 0, f"a ratio: {ratio}")
            for server in ("node", "memcached"):
                numbers = row["options"][server]
                expect(all(value > 0 for value in numbers.values()), f"{server}: {numbers}")
                expect(numbers["process_cpu_us"] >= numbers["cpu_us"] * 0.99, f"a thread is part of its process: {row}")
                expect(numbers["p50_us"] <= numbers["p99_us"] <= numbers["p999_us"], f"{numbers}")
    for pattern in (f"loam-storage-node .*--memory {MEMORY}", f"memcached .*-m {MEMORY >> 20} "):
        left = subprocess.run(["pgrep", "-af", pattern], capture_output=True, text=True).stdout
        expect(not left, f"no server is left: {left}")
    print("ok")


main()
