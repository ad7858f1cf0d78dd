"""Compares docs/metrics.md with the metrics that a running cluster reports.

    python3 tests/deploy/monitoring/metrics_page_test.py build/dev/bin/loam --write

writes the tables of the page anew, from the metrics of a cluster of the program `loam`."""

import pathlib
import re
import sys
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "deploy/cli/tests"))
import cluster  # noqa: E402

PAGE = ROOT / "docs/metrics.md"
# Prefix of the names → the field of the output of `loam dev` with the address of the server.
SERVERS = {
    "loam_manager": "admin_address",
    "loam_recovery": "admin_address",
    "loam_node": "node_admin_address",
    "loam_table": "node_admin_address",
}
_SAMPLE = re.compile(r"^(?P<name>\w+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="(?:[^"\\]|\\.)*"')


def get(address, path):
    """Returns status and text of the reply of an administration port."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=cluster.DEADLINE_S) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Scrape:
    """The parsed text of one scrape, in the order of the text: `kinds`, `help` and `labels` by name of the metric."""

    def __init__(self, text):
        self.kinds, self.help, self.labels, self.values = {}, {}, {}, {}
        for line in text.splitlines():
            if line.startswith("# HELP "):
                name, self.help[name] = line[len("# HELP "):].split(" ", 1)
            elif line.startswith("# TYPE "):
                name, self.kinds[name] = line[len("# TYPE "):].split(" ", 1)
            else:
                sample = _SAMPLE.match(line)
                labels = _LABEL.findall(sample["labels"] or "")
                self.labels.setdefault(sample["name"], labels)
                self.values[sample["name"], sample["labels"] or ""] = float(sample["value"])

    def table(self, prefix):
        """Returns the table of the page with the metrics of one prefix."""
        rows = ["| metric | type | meaning |", "| --- | --- | --- |"]
        for name, kind in self.kinds.items():
            if name.startswith(prefix + "_"):
                own = [label for label in self.labels[name + "_bucket" if kind == "histogram" else name] if label != "le"]
                labels = f" Labels: {', '.join(f'`{label}`' for label in own)}." if own else ""
                rows.append(f"| `{name}` | {kind} | {self.help[name]}.{labels} |")
        return "\n".join(rows) + "\n"


def scrape(dev):
    """Returns the metrics of both servers by their addresses in the output of `loam dev`."""
    result = {}
    for field in set(SERVERS.values()):
        status, text = get(dev.config[field], "/metrics")
        assert status == 200, text
        result[field] = Scrape(text)
    return result


def page_with(text, scrapes):
    """Returns the text of the page with the tables of these scrapes."""
    for prefix, field in SERVERS.items():
        begin, end = f"<!-- metrics of {prefix} -->\n", "<!-- end -->\n"
        assert begin in text, f"{PAGE}: the line {begin.strip()} is missing"
        head, rest = text.split(begin, 1)
        text = head + begin + scrapes[field].table(prefix) + end + rest.split(end, 1)[1]
    return text


class MetricsPageTest(cluster.ClusterTest):
    def setUp(self):
        super().setUp()
        self.create("value:int64")

    def test_the_page_has_all_metrics(self):
        now = PAGE.read_text(encoding="utf-8")
        self.assertEqual(now, page_with(now, scrape(self.dev)),
                         f"write the tables anew: python3 tests/deploy/monitoring/{pathlib.Path(__file__).name} PATH/loam --write")

    def test_metrics_count_what_happens(self):
        def value(field, name, labels=""):
            return scrape(self.dev)[field].values[name, labels]

        writes = f'table="{self.table}"'
        commits = value("admin_address", "loam_manager_commits_total")
        self.assertEqual(value("node_admin_address", "loam_table_writes_total", writes), 0)
        for key in range(3):
            self.good("put", self.table, key, "value=1")
        self.assertEqual(value("node_admin_address", "loam_table_writes_total", writes), 3)
        self.assertEqual(value("node_admin_address", "loam_table_keys", writes), 3)
        cluster.wait_until(lambda: value("admin_address", "loam_manager_commits_total") == commits + 3, "the commits are counted")
        self.assertGreater(value("node_admin_address", "loam_node_uptime_seconds_total"), 0)

    def test_only_the_largest_tables_have_metrics(self):
        rows = self.write("t.csv", "id,value\n" + "".join(f"{n},{n}\n" for n in range(1_000)))
        self.good("import", self.table, rows, "--key", "id")
        for n in range(101):
            self.good("table", "create", f"{self.table}_{n}", "--field", "value:int64")
        names = [labels for name, labels in scrape(self.dev)["node_admin_address"].values if name == "loam_table_keys"]
        self.assertEqual(len(names), 101)
        self.assertIn(f'table="{self.table}"', names)
        self.assertIn('table="(others)"', names, "the sums of the other tables")

    def test_the_state_of_the_servers(self):
        for address in set(self.dev.config[field] for field in SERVERS.values()):
            self.assertEqual(get(address, "/healthz"), (200, "ok\n"))
            self.assertEqual(get(address, "/readyz"), (200, "serving\n"))
            self.assertEqual(get(address, "/version")[0], 200)
            self.assertEqual(get(address, "/no-such-path")[0], 404)


def main():
    if "--write" not in sys.argv:
        cluster.main()
        return
    with cluster.Dev() as dev:
        created = cluster.loam("table", "create", "t", "--field", "value:int64", connect=dev.address)
        assert created.returncode == 0, created.stderr
        PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), scrape(dev)), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
