"""The metrics of servers with 1,000 tables: what a scrape contains, and what it costs."""

import json
import os
import re
import statistics
import sys
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, ClusterTest, DEADLINE_S, main, now  # noqa: E402

TABLES, NAMED = 1_000, 100  # the second number is kTablesInMetrics of the storage node
SCRAPES = 20
LIMIT_MS = 50


def processor_ms(process):
    """Returns the processor time of a process in milliseconds."""
    with open(f"/proc/{process.pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1_000 / os.sysconf("SC_CLK_TCK")


class ScrapeTest(ClusterTest):
    def make_cluster(self):
        return Cluster(nodes=1)

    def scrape(self, address):
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=DEADLINE_S) as reply:
            return reply.read().decode()

    def measure(self, name, process, address):
        """Prints the median time of a scrape. Returns the processor time of one, as a mean."""
        before, times = processor_ms(process), []
        for _ in range(SCRAPES):
            start = now()
            self.scrape(address)
            times.append((now() - start) * 1_000)
        spent = (processor_ms(process) - before) / SCRAPES
        print(json.dumps({"figure": f"metrics.{name}_scrape_ms", "value": round(statistics.median(times), 2),
                          "unit": "ms", "n": SCRAPES, "processor_ms": round(spent, 2), "tables": TABLES}))
        return spent

    def test_a_scrape_of_a_thousand_tables_is_cheap(self):
        for number in range(TABLES):
            self.guide.call_ok(f"create t{number:04} int64")
        self.cluster.loam("put", "t0007", 1, "value=1")  # larger than all tables without records
        node = json.loads(self.cluster.loam("node", "list", "--json"))["admin_address"]
        manager = self.cluster.manager.wait_for_log(r"administration at (\S+)").group(1)
        text = self.scrape(node)
        tables = re.findall(r'^loam_table_log_bytes\{table="([^"]+)"\}', text, re.MULTILINE)
        self.assertEqual(len(tables), NAMED + 1)
        self.assertLessEqual({"t0007", "accounts", "(others)"}, set(tables))
        keys = re.findall(r'^loam_table_keys\{table="[^"]+"\} (\d+)$', text, re.MULTILINE)
        self.assertEqual(len(keys), NAMED + 1)
        self.assertGreaterEqual(sum(map(int, keys)), 21, "those of the accounts and of t0007")
        self.assertRegex(self.scrape(manager), r"(?m)^loam_manager_tables \d+$")
        for name, process, address in (("node", self.cluster.nodes[0], node),
                                       ("manager", self.cluster.manager, manager)):
            self.assertLess(self.measure(name, process, address), LIMIT_MS, name)


if __name__ == "__main__":
    main()
