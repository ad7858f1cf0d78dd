"""Checks deploy/monitoring: the configuration, the alerts and their tests, the dashboards, and docs/alerts.md.

Without promtool (Debian package prometheus, or the program that LOAM_PROMTOOL names) the tests that need it are skipped,
and the exit code is 77 if all others pass."""

import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
try:
    import yaml
except ImportError:
    print("skipped: Python has no module yaml; install the Debian package python3-yaml")
    sys.exit(77)

import metric_names  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROMTOOL = os.environ.get("LOAM_PROMTOOL") or shutil.which("promtool")
SKIPPED = 77

RULES = "deploy/monitoring/rules/loam.yml"
TESTS = "deploy/monitoring/tests"
DASHBOARDS = "deploy/monitoring/grafana"
PAGE = "docs/alerts.md"
_SEVERITIES = ("critical", "warning")
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_PARTS = ("**What it means.**", "**What to look at.**", "**What to do.**")  # of the section of an alert
_VARIABLE = re.compile(r"\$\{?(\w+)")
_LABEL_VALUES = re.compile(r"label_values\((.*),\s*(\w+)\)")
_SERIES = re.compile(r"^([\w:]+)")


@functools.cache
def _parse(text):
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _load(path):
    return _parse(path.read_text(encoding="utf-8"))


def _rules(root):
    return [rule for group in _load(root / RULES)["groups"] for rule in group["rules"]]


def _alerts(root):
    return {rule["alert"]: rule for rule in _rules(root) if "alert" in rule}


def _recorded(root):
    return {rule["record"] for rule in _rules(root) if "record" in rule}


def _dashboards(root):
    return {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted((root / DASHBOARDS).glob("*.json"))}


def _panels(dashboard):
    """Returns all panels, with those inside collapsed rows."""
    return [panel for one in dashboard.get("panels", []) for panel in (one, *one.get("panels", []))]


def check_rules(root):
    """Yields the faults of the rules: a part that is missing, a wrong link, a name that no server reports."""
    metrics, recorded = metric_names.Metrics(root), _recorded(root)
    seen = set()
    for rule in _rules(root):
        name = rule.get("alert") or rule["record"]
        if name in seen:
            yield f"{name}: there are two rules of this name"
        seen.add(name)
        yield from (f"{name}: {problem}" for problem in metric_names.problems_of(rule["expr"], metrics, recorded))
        if "alert" not in rule:
            continue
        notes = rule.get("annotations", {})
        if rule.get("labels", {}).get("severity") not in _SEVERITIES:
            yield f"{name}: its severity is none of {', '.join(_SEVERITIES)}"
        yield from (f"{name}: it has no {part}" for part in ("summary", "description") if not notes.get(part))
        if "for" not in rule:
            yield f"{name}: it has no 'for'"
        if notes.get("runbook_url") != f"{PAGE}#{name.lower()}":
            yield f"{name}: its runbook_url is not {PAGE}#{name.lower()}"
        for text in notes.values():
            queries = [query.replace("\\", "") for query in re.findall(r"printf \"(.*?)\" \$labels", text)]
            queries = [query.replace("%q", '""') for query in queries]
            yield from (f"{name}: {problem}" for query in queries for problem in metric_names.problems_of(query, metrics, recorded))


def check_tests(root):
    """Yields each alert without a promtool test in which it fires or in which it is silent, and unknown names."""
    metrics, alerts = metric_names.Metrics(root), _alerts(root)
    fires, silent = set(), set()
    for path in sorted((root / TESTS).glob("*.yml")):
        for case in _load(path)["tests"]:
            series = [_SERIES.match(one["series"])[1] for one in case["input_series"]]
            known = set(metrics.kinds) | metric_names.PROMETHEUS_SERIES
            yield from (f"{path.name}: no metric {name}" for name in series if name not in known)
            for test in case["alert_rule_test"]:
                (fires if test.get("exp_alerts") else silent).add(test["alertname"])
    yield from (f"no alert {name}, although it has a test" for name in sorted((fires | silent) - set(alerts)))
    yield from (f"{name}: no test in which it fires" for name in sorted(set(alerts) - fires))
    yield from (f"{name}: no test in which it is silent" for name in sorted(set(alerts) - silent))


def check_page(root):
    """Yields each alert whose section in docs/alerts.md lacks or misses a part, and sections of unknown alerts."""
    sections = re.split(r"^### ", (root / PAGE).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    sections = {section.split("\n", 1)[0].strip(): section for section in sections}
    for name, alert in _alerts(root).items():
        section = sections.get(name)
        if section is None:
            yield f"{name}: no section in {PAGE}"
            continue
        yield from (f"{name}: its section has no part {part}" for part in _PARTS if part not in section)
        if f"({alert['labels']['severity']})" not in section:
            yield f"{name}: its section does not name its severity ({alert['labels']['severity']})"
    yield from (f"{PAGE}: a section of the unknown alert {name}" for name in sections if name not in _alerts(root))


def queries_of(dashboard):
    """Returns the queries of a dashboard as pairs of a place and an expression, with those of its variables."""
    queries = [
        (f"panel '{panel.get('title')}'", target.get("expr", "")) for panel in _panels(dashboard) for target in panel.get("targets", [])
    ]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            match = _LABEL_VALUES.fullmatch(variable["query"]["query"])
            queries.append((f"variable {variable['name']}", f"count by ({match[2]}) ({match[1]})" if match else ""))
    return queries


def _check_panel(panel):
    """Yields the faults of one panel."""
    place = panel.get("gridPos", {})
    if not {"x", "y", "w", "h"} <= set(place) or place["x"] + place["w"] > 24:
        yield "its gridPos does not fit into 24 columns"
    if not panel.get("title"):
        yield "it has no title"
    if panel.get("type") == "row":
        return
    if not panel.get("description"):
        yield "it has no description"
    targets = panel.get("targets", [])
    if not targets:
        yield "it has no query"
    if len({target.get("refId") for target in targets}) != len(targets):
        yield "two queries have one refId"
    if any(one.get("datasource") != _DATASOURCE for one in (panel, *targets)):
        yield "it does not use the variable datasource"


def _overlap(one, other):
    a, b = one["gridPos"], other["gridPos"]
    return a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"] and a["y"] < b["y"] + b["h"] and b["y"] < a["y"] + a["h"]


def check_dashboards(root):
    """Yields faults in the structure of the dashboards, and names in their queries that no server reports."""
    metrics, recorded = metric_names.Metrics(root), _recorded(root)
    uids = set()
    for name, dashboard in _dashboards(root).items():
        if not dashboard.get("uid") or dashboard["uid"] in uids:
            yield f"{name}: its uid is missing or belongs to another dashboard"
        uids.add(dashboard.get("uid"))
        if not dashboard.get("title") or not isinstance(dashboard.get("schemaVersion"), int):
            yield f"{name}: title or schemaVersion is missing"
        variables = {one["name"]: one for one in dashboard["templating"]["list"]}
        source = variables.get("datasource", {})
        if source.get("type") != "datasource" or source.get("query") != "prometheus":
            yield f"{name}: no variable datasource for data sources of the type prometheus"
        panels = _panels(dashboard)
        if not panels:
            yield f"{name}: it has no panels"
        ids = [panel.get("id") for panel in panels]
        if len(set(ids)) != len(ids) or not all(isinstance(one, int) for one in ids):
            yield f"{name}: the ids of its panels are not unique numbers"
        problems = [(panel.get("title"), problem) for panel in panels for problem in _check_panel(panel)]
        yield from (f"{name}: panel '{title}': {problem}" for title, problem in problems)
        top = dashboard["panels"] if not problems else []
        for i, panel in enumerate(top):
            yield from (f"{name}: panel '{panel['title']}' lies over '{one['title']}'" for one in top[:i] if _overlap(panel, one))
        for place, expression in queries_of(dashboard):
            used = {variable for variable in _VARIABLE.findall(expression) if not variable.startswith("__")}
            yield from (f"{name}: {place}: no variable {variable}" for variable in sorted(used - set(variables)))
            yield from (f"{name}: {place}: {problem}" for problem in metric_names.problems_of(expression, metrics, recorded))
            if not metric_names.names_of(expression)[0]:
                yield f"{name}: {place}: its query names no metric"


def _promtool(*arguments):
    """Runs promtool. Returns its exit code and its output."""
    result = subprocess.run([PROMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    return result.returncode, result.stdout + result.stderr


def check_with_promtool(root):
    """Yields the output of each promtool command that fails."""
    folder = root / "deploy/monitoring"
    for command in (
        ("check", "config", folder / "prometheus.yml"),
        ("check", "rules", root / RULES),
        ("test", "rules", *sorted((root / TESTS).glob("*.yml"))),
    ):
        code, output = _promtool(*command)
        if code != 0:
            yield f"promtool {command[0]} {command[1]}: {output}"


def _series_of_a_healthy_cluster(metrics):
    """Returns input series for promtool: a commit manager and two storage nodes with two tables each."""
    manager = 'job="loam",role="commit-manager",instance="m:7410",loam_cluster="c"'
    nodes = [f'job="loam",role="storage-node",instance="n{n}:7411",loam_cluster="c"' for n in (1, 2)]
    series = [(f"up{{{labels}}}", "1+0x10") for labels in (manager, *nodes)]
    series.append(('ALERTS{alertname="LoamTest",alertstate="firing",loam_cluster="c"}', "1+0x10"))
    for name, kind in metrics.kinds.items():
        places = nodes if name.startswith(("loam_node", "loam_table")) else [manager]
        if name.startswith("loam_table"):
            places = [f'{labels},table="{table}"' for labels in nodes for table in ("t", "u")]
        if "_request_seconds" in name or "_stage_seconds" in name:
            places = [f'{labels},kind="a",stage="b"' for labels in places]
        if name.endswith("_bucket"):
            places = [f'{labels},le="{bound}"' for labels in places for bound in ("0.001", "+Inf")]
        if name.endswith("_info"):
            places = [f'{labels},cluster="a",not_serving="a reason"' for labels in places]
        series += [(f"{name}{{{labels}}}", "0+60x10" if kind == "counter" else "1+0x10") for labels in places]
    return [{"series": name, "values": values} for name, values in series]


def check_queries(root):
    """Yields a text if a query of a dashboard has no result in a cluster whose servers report all metrics."""
    tests = []
    for name, dashboard in _dashboards(root).items():
        for place, expression in queries_of(dashboard):
            expression = _VARIABLE.sub(lambda match: "5m" if match[1].startswith("__") else ".*", expression)
            result = {"expr": f"count({expression}) > bool 0", "eval_time": "8m", "exp_samples": [{"labels": "{}", "value": 1}]}
            tests.append((f"{name}: {place}", result))
    series = _series_of_a_healthy_cluster(metric_names.Metrics(root))
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "queries.yml"
        test = {"name": "queries of the dashboards", "interval": "1m", "input_series": series}
        test["promql_expr_test"] = [result for _, result in tests]
        file.write_text(yaml.safe_dump({"rule_files": [str(root / RULES)], "evaluation_interval": "1m", "tests": [test]}))
        code, output = _promtool("test", "rules", file)
    if code != 0 or not tests:
        yield f"promtool: {output}"


class Tree(unittest.TestCase):
    """The files of this tree."""

    def assert_none(self, findings):
        self.assertEqual(list(findings), [])

    def test_rules_are_complete_and_name_existing_metrics(self):
        self.assert_none(check_rules(ROOT))

    def test_each_alert_has_a_test_that_fires_and_one_that_is_silent(self):
        self.assert_none(check_tests(ROOT))

    def test_each_alert_has_a_section(self):
        self.assert_none(check_page(ROOT))

    def test_dashboards(self):
        self.assertGreaterEqual(len(_dashboards(ROOT)), 4)
        self.assert_none(check_dashboards(ROOT))

    @unittest.skipUnless(PROMTOOL, "no promtool: install the Debian package prometheus")
    def test_promtool_accepts_configuration_rules_and_their_tests(self):
        self.assert_none(check_with_promtool(ROOT))

    @unittest.skipUnless(PROMTOOL, "no promtool: install the Debian package prometheus")
    def test_each_query_of_a_dashboard_has_a_result(self):
        self.assert_none(check_queries(ROOT))


class Names(unittest.TestCase):
    """The parser of docs/metrics.md and of expressions."""

    def test_names_of_the_page(self):
        kinds = metric_names.Metrics(ROOT).kinds
        for name, kind in (("loam_node_uptime_seconds_total", "counter"), ("loam_node_bytes_in_total", "counter"),
                           ("loam_node_memory_lost", "gauge"), ("loam_node_info", "gauge"), ("loam_table_keys", "gauge"),
                           ("loam_table_gets_total", "counter"), ("loam_manager_refused_total", "counter"),
                           ("loam_manager_queued_begins", "gauge"), ("loam_manager_wakes_total", "counter"),
                           ("loam_recovery_running", "gauge"), ("loam_node_request_seconds_bucket", "counter"),
                           ("loam_manager_stage_seconds_sum", "counter")):  # fmt: skip
            self.assertEqual(kinds.get(name), kind, name)
        for name in ("loam_table_table", "loam_table_info", "loam_node_uptime_ns", "loam_recovery_info", "loam_node_cluster",
                     "loam_node_request_seconds"):
            self.assertNotIn(name, kinds)

    def test_names_of_an_expression(self):
        series, labels = metric_names.names_of(
            'sum by (instance, a) (rate(x_total{job="l", b=~"c_total"}[5m] offset 5m)) / on (d) group_left (e) y:z > bool 1e3 or up unless z'
        )
        self.assertEqual(series, {"x_total", "y:z", "up", "z"})
        self.assertEqual(labels, {"instance", "a", "job", "b", "d", "e"})


class Breaches(unittest.TestCase):
    """Each check finds what it is for, in a copy of the tree with one mistake."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        shutil.copytree(ROOT / "deploy/monitoring", self.root / "deploy/monitoring")
        for file in (PAGE, metric_names.PAGE):
            (self.root / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, self.root / file)

    def assert_breach(self, check, file, old, new, finding):
        """Replaces `old` once in the copy of `file`, and expects a finding of `check` that contains `finding`."""
        path = self.root / file
        text = path.read_text(encoding="utf-8")
        self.assertIn(old, text)
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        findings = list(check(self.root))
        path.write_text(text, encoding="utf-8")
        self.assertTrue(any(finding in one for one in findings), f"{finding!r} is not in {findings}")

    def test_of_rules(self):
        for old, new, finding in (
            ("loam_node_lease_holds == 0", "loam_node_lease_held == 0", "LoamLeaseLost: no metric loam_node_lease_held"),
            ("sum without (table) (loam_table_log", "sum without (tables) (loam_table_log", "no label tables"),
            ("rate(loam_node_operations_total", "rate(loam_node_sessions", "loam_node_sessions is no counter"),
            ("severity: critical", "severity: high", "LoamCommitManagerDown: its severity"),
            ("        for: 30s\n", "", "LoamCommitManagerDown: it has no 'for'"),
            ("          summary: The commit", "          title: The commit", "LoamCommitManagerDown: it has no summary"),
            ("description: >-", "text: >-", "LoamCommitManagerDown: it has no description"),
            ("alerts.md#loamleaselost", "alerts.md#lease", "LoamLeaseLost: its runbook_url"),
            ("alert: LoamLeaseLost", "alert: LoamNotServing", "LoamNotServing: there are two rules"),
            ('printf "loam_manager_info', 'printf "loam_manager_text', "LoamNotServing: no metric loam_manager_text"),
        ):
            with self.subTest(finding):
                self.assert_breach(check_rules, RULES, old, new, finding)

    def test_of_metrics(self):
        page = metric_names.PAGE
        self.assert_breach(check_rules, page, "| `loam_node_lease_holds`", "| `loam_node_lease_held`", "no metric loam_node_lease_holds")
        self.assert_breach(check_rules, page, "`loam_node_operations_total` | counter", "`loam_node_operations_total` | gauge",
                           "loam_node_operations_total is no counter")  # fmt: skip

    def test_of_rule_tests(self):
        file = f"{TESTS}/cluster.yml"
        self.assert_breach(check_tests, RULES, "alert: LoamLeaseLost", "alert: LoamLeaseGone", "LoamLeaseGone: no test in which it fires")
        self.assert_breach(check_tests, RULES, "alert: LoamLeaseLost", "alert: LoamLeaseGone", "LoamLeaseGone: no test in which it is silent")
        self.assert_breach(check_tests, RULES, "alert: LoamLeaseLost", "alert: LoamLeaseGone", "no alert LoamLeaseLost, although")
        self.assert_breach(check_tests, file, "series: 'loam_node_lease_holds", "series: 'loam_node_lease", "no metric loam_node_lease")

    def test_of_page(self):
        self.assert_breach(check_page, PAGE, "### LoamLeaseLost\n", "### LoamLeaseGone\n", "LoamLeaseLost: no section")
        self.assert_breach(check_page, PAGE, "### LoamLeaseLost\n", "### LoamLeaseGone\n", "unknown alert LoamLeaseGone")
        self.assert_breach(check_page, PAGE, _PARTS[1], "", f"has no part {_PARTS[1]}")
        self.assert_breach(check_page, PAGE, "(critical)", "(warning)", "does not name its severity")

    def test_of_dashboards(self):
        file = f"{DASHBOARDS}/tables.json"
        for old, new, finding in (
            ('"uid": "loam-tables"', '"uid": "loam-overview"', "belongs to another dashboard"),
            ('"title": "Loam / Tables"', '"title": ""', "title or schemaVersion is missing"),
            ('"type": "datasource"', '"type": "textbox"', "no variable datasource"),
            ('"id": 2\n', '"id": 3\n', "not unique numbers"),
            ('"x": 16,', '"x": 17,', "does not fit into 24 columns"),
            ('"x": 8,', '"x": 7,', "lies over"),
            ('"title": "Keys"', '"title": ""', "it has no title"),
            ('"description": "Keys', '"text": "Keys', "it has no description"),
            ('"uid": "${datasource}"\n      },\n      "gridPos"', '"uid": "prometheus"\n      },\n      "gridPos"', "use the variable datasource"),
            ("sum by (table) (loam_table_keys{", "sum by (table) (loam_table_rows{", "panel 'Keys': no metric loam_table_rows"),
            ('"query": "label_values(loam_table_keys{', '"query": "label_values(loam_table_rows{', "variable table: no metric loam_table_rows"),
            (r'table=~\"$table\"', r'table=~\"$tables\"', "no variable tables"),
            (r'"refId": "B"', r'"refId": "A"', "two queries have one refId"),
        ):
            with self.subTest(finding):
                self.assert_breach(check_dashboards, file, old, new, finding)

    @unittest.skipUnless(PROMTOOL, "no promtool: install the Debian package prometheus")
    def test_that_promtool_finds(self):
        config = "deploy/monitoring/prometheus.yml"
        for other in (self.root / TESTS).glob("[!c]*.yml"):
            other.unlink()  # these tests take half a minute
        self.assert_breach(check_with_promtool, config, "scrape_interval: 15s", "scrape_interval: often", "promtool check config")
        self.assert_breach(check_with_promtool, RULES, "loam_node_lease_holds == 0", "loam_node_lease_holds ==", "promtool check rules")
        self.assert_breach(check_with_promtool, RULES, "loam_node_lease_holds == 0", "loam_node_lease_holds == 2", "LoamLeaseLost fires")
        self.assert_breach(check_with_promtool, RULES, "loam_node_lease_holds == 0", "loam_node_lease_holds >= 0", "LoamLeaseLost is silent")

    @unittest.skipUnless(PROMTOOL, "no promtool: install the Debian package prometheus")
    def test_of_queries(self):
        file = f"{DASHBOARDS}/tables.json"
        for other in (self.root / DASHBOARDS).glob("[cs]*.json"):
            other.unlink()
        self.assert_breach(check_queries, file, "sum by (table) (loam_table_keys{", "sum by (table) (loam_table_keys{role=\\\"x\\\",", "count(sum")
        self.assert_breach(check_queries, file, "sum by (table) (loam_table_keys{", "summ by (table) (loam_table_keys{", "parse error")


if __name__ == "__main__":
    program = unittest.main(exit=False)
    skipped = program.result.skipped
    if not program.result.wasSuccessful():
        sys.exit(1)
    if skipped:
        print(f"{len(skipped)} tests skipped: {skipped[0][1]}")
        sys.exit(SKIPPED)
