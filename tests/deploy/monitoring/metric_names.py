"""The names of all metrics of Loam's servers, from docs/metrics.md, and the names that an expression of PromQL uses."""

import re

PAGE = "docs/metrics.md"
# Labels that prometheus.yml and Prometheus give each target, and the label of a table.
_TARGET_LABELS = {"job", "instance", "role", "loam_cluster", "table"}
# Series that Prometheus makes, and their labels.
PROMETHEUS_SERIES = {"up", "ALERTS"}
_PROMETHEUS_LABELS = {"alertname", "alertstate"}

# Ends of the names under which Prometheus stores a histogram.
HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")

_ROW = re.compile(r"^\| `(loam_\w+)` \| (\w+) \| (.*) \|$", re.MULTILINE)

_STRING = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'")
_MATCHERS = re.compile(r"\{([^{}]*)\}")
_LABELS = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^()]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]|\boffset\s+\w+")
_WORD = re.compile(r"(?<![\w.:])[A-Za-z_:][\w:]*(?!\w)(?!\s*\()")
_OPERATORS = {"and", "or", "unless", "bool"}
_OF_COUNTERS = re.compile(r"\b(?:rate|irate|increase|resets)\(\s*([A-Za-z_:][\w:]*)")


class Metrics:
    """The metrics of all servers: `kinds` has the kind of each metric by its name, `labels` every label name."""

    def __init__(self, root):
        self.kinds = {}
        self.labels = _TARGET_LABELS | _PROMETHEUS_LABELS
        for name, kind, meaning in _ROW.findall((root / PAGE).read_text(encoding="utf-8")):
            # Prometheus stores a histogram as counters under three names.
            stored = {name: kind} if kind != "histogram" else {name + part: "counter" for part in HISTOGRAM_PARTS}
            self.kinds.update(stored)
            self.labels.update({"le"} if kind == "histogram" else ())
            self.labels.update(re.findall(r"`(\w+)`", meaning.partition("Labels: ")[2]))


def names_of(expression):
    """Returns the names of the series and the names of the labels that an expression uses."""
    text = _STRING.sub('""', expression)
    labels = set()
    for matchers in _MATCHERS.findall(text):
        labels.update(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
    text = _MATCHERS.sub(" ", text)
    for group in _LABELS.findall(text):
        labels.update(re.findall(r"\w+", group))
    text = _RANGE.sub(" ", _LABELS.sub(" ", text))
    return set(_WORD.findall(text)) - _OPERATORS, labels


def problems_of(expression, metrics, recorded):
    """Returns the faults of the names in an expression. `recorded`: the names of the recording rules."""
    series, labels = names_of(expression)
    problems = [f"no metric {name}" for name in sorted(series - set(metrics.kinds) - recorded - PROMETHEUS_SERIES)]
    problems += [f"no label {name}" for name in sorted(labels - metrics.labels)]
    problems += [f"{name} is no counter" for name in _OF_COUNTERS.findall(expression) if metrics.kinds.get(name) != "counter"]
    return problems
