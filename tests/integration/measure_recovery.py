"""Measures how long failures block clients. Prints distributions as JSON to stdout.

    python3 tests/integration/measure_recovery.py build/dev/bin/loam-commit-manager build/dev/bin/loam-storage-node \\
        build/dev/bin/loam build/dev/tests/integration/loam-workload --runs 50

* dead_client_keys_ms: from the death of a client to the moment when another client has committed a change of the same
  keys. All writes of the dead client were applied, and its commit was not decided.
  dead_client_keys_beyond_lease_ms is this time minus the lease.
* manager_restart_ms: from the start of the commit manager's new process, after a SIGKILL, to the reply to the begin of
  a waiting client. The times of the parts come from the commit manager's log: manager_serving_ms until the manager
  listens; nodes_back_ms from there until the last storage node has connected, which depends on the nodes' back-off;
  begin_after_nodes_ms from there to the reply. manager_restart_without_back_off_ms is the sum of the first and the
  last part in each run.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import ACCOUNTS, BALANCE, Cluster, now  # noqa: E402

KEYS = range(1, 9)


def distribution(values):
    ordered = sorted(values)

    def at(share):
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    return {"runs": len(ordered), "min": at(0), "p50": at(0.5), "p90": at(0.9), "max": at(1)}


def dead_client_keys(cluster, guide, runs):
    changes = " ".join(f"add:{key}={1 if key % 2 else -1}" for key in KEYS)
    values = []
    for run in range(runs):
        victim = cluster.client(f"victim-{run}", pause="client.commit.writes_applied=kill")
        victim.call_ok(f"prepare {changes}")
        victim.send("commit")
        victim.wait()
        died = now()
        answer = guide.call_ok(f"writable 60000 {' '.join(map(str, KEYS))}", deadline=90)
        values.append((answer["ended"] / 1e9 - died) * 1000)
        victim.close()
    return values


def logged_at(cluster, what):
    """Returns the time of the last line in the commit manager's log that contains `what`, in seconds since 1970."""
    with open(os.path.join(cluster.folder, "manager.log"), encoding="utf-8") as log:
        line = [line for line in log if what in line][-1]
    return datetime.datetime.fromisoformat(line.split(" ")[0].replace("Z", "+00:00")).timestamp()


def manager_restart(cluster, guide, runs):
    """Returns the milliseconds of each run, by the name of the part."""
    names = ("manager_restart", "manager_serving", "nodes_back", "begin_after_nodes", "manager_restart_without_back_off")
    parts = {name: [] for name in names}
    for _ in range(runs):
        cluster.manager.kill()
        started = now()
        epoch = time.time() - now()
        cluster.start_manager()
        answer = guide.call_ok("writable 60000 1", deadline=90)
        begun = answer["begun"] / 1e9
        serving = logged_at(cluster, "serving at") - epoch
        nodes = logged_at(cluster, "came back as incarnation") - epoch
        parts["manager_restart"].append((begun - started) * 1000)
        parts["manager_serving"].append((serving - started) * 1000)
        parts["nodes_back"].append((nodes - serving) * 1000)
        parts["begin_after_nodes"].append((begun - nodes) * 1000)
        parts["manager_restart_without_back_off"].append((begun - started - (nodes - serving)) * 1000)
    return parts


def revision():
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs=4, help="loam-commit-manager loam-storage-node loam loam-workload")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--lease-ms", type=int, default=500, help="lease of clients and storage nodes")
    parser.add_argument("--nodes", type=int, default=2)
    options = parser.parse_args()
    lease_s = options.lease_ms / 1000
    with Cluster(nodes=options.nodes, lease_s=lease_s, node_lease_s=lease_s) as cluster:
        guide = cluster.client("guide")
        guide.call_ok(f"load {ACCOUNTS} {BALANCE}")
        keys = dead_client_keys(cluster, guide, options.runs)
        restarts = manager_restart(cluster, guide, options.runs)
    json.dump({
        "git": revision(), "host": platform.node(), "cpus": os.cpu_count(), "options": {
            "runs": options.runs, "lease_ms": options.lease_ms, "nodes": options.nodes, "accounts": ACCOUNTS},
        "dead_client_keys_ms": distribution(keys),
        "dead_client_keys_beyond_lease_ms": distribution([value - options.lease_ms for value in keys]),
        **{f"{name}_ms": distribution(values) for name, values in restarts.items()}}, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
