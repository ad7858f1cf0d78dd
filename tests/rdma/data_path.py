"""Tests that the data of a cluster travels only over verbs. cluster_test.py runs this file in a guest.

The arguments are the same as in tests/integration/cluster.py.
"""

import csv
import gzip
import io
import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "integration"))
from cluster import Cluster, ClusterTest, main  # noqa: E402

SAMPLE = ROOT / "deploy" / "cli" / "data" / "flights-2013-01.csv.gz"


def sample():
    with gzip.open(SAMPLE, "rt") as file:
        return list(csv.DictReader(file))


class DataPathTest(ClusterTest):
    def make_cluster(self):
        return Cluster(node_options=["--scan-threads", "1"])

    def statistics(self):
        return [node["statistics"] for node in json.loads(self.cluster.loam("stats", "--json"))["nodes"]]

    def no_tcp(self):
        """Checks that no server listens for data on TCP, and that all TCP connections lead to administration ports."""
        ports = {int(re.search(r"administration at \S+:(\d+)", server.log()).group(1))
                 for server in [self.cluster.manager, *self.cluster.nodes]}
        for table in ("tcp", "tcp6"):
            for line in (pathlib.Path("/proc/net") / table).read_text().splitlines()[1:]:
                local, remote = (int(address.split(":")[1], 16) for address in line.split()[1:3])
                self.assertTrue({local, remote} & ports, f"a {table} socket that does not belong to administration: {line}")

    def test_scans_and_indexes_use_only_verbs(self):
        loam = self.cluster.loam
        flights = sample()
        loam("import", "flights", SAMPLE)
        loam("index", "create", "by_route", "--table", "flights", "--fields", "origin,dest")

        before = self.statistics()
        rows = list(csv.DictReader(io.StringIO(loam("scan", "flights", "--csv"))))
        after = self.statistics()
        self.assertEqual(sorted((row["origin"], row["dest"], int(row["distance"])) for row in rows),
                         sorted((row["origin"], row["dest"], int(row["distance"])) for row in flights))
        for then, now in zip(before, after):
            gained = {name: now[name] - then[name]
                      for name in ("direct_writes", "direct_bytes", "bytes_out", "flushes", "work_requests")}
            self.assertGreater(gained["direct_writes"], 0, gained)
            self.assertGreater(gained["direct_bytes"], gained["bytes_out"] / 2, f"rows travelled in messages: {gained}")
            self.assertGreater(gained["work_requests"], gained["flushes"], f"only one send for each doorbell: {gained}")
        print("scan:", json.dumps(gained))

        found = json.loads("[" + ",".join(loam("get", "flights", "--index", "by_route", "JFK", "LAX", "--json").splitlines())
                           + "]")
        wanted = [row for row in flights if (row["origin"], row["dest"]) == ("JFK", "LAX")]
        self.assertEqual(sorted(row["dep_time"] or 0 for row in found),
                         sorted(int(row["dep_time"]) if row["dep_time"] not in ("", "NA") else 0 for row in wanted))
        answers = [json.loads(line) for line in loam("ping", "--count", 20, "--json").splitlines()]
        self.assertEqual([answer["replies"] for answer in answers], [20, 20, 20], "the manager and two nodes")
        self.assertTrue(all(answer["address"].startswith("rdma://") for answer in answers), answers)
        self.no_tcp()


if __name__ == "__main__":
    main()
