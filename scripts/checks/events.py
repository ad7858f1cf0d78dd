"""The events of the log: docs/log-events.md has a row for each, with its level, and one place of the sources logs it."""

import re

from checks import cpp
from checks.tree import Finding

WHAT = "every event of the log has one place in the sources and one row in docs/log-events.md"

DOCUMENT = "docs/log-events.md"
# Calls that log, and the level of their lines. The first argument is the event. A call of log() names its level.
_LEVELS = {"log_info": "info", "log_warning": "warning", "log_error": "error", "log_line": "info"}
_CALL = re.compile(r"\b(log_info|log_warning|log_error|log_line)\(")
# A LogLine that is written without these calls.
_LOG_LINE = re.compile(r"\b(?:log|write)\(\s*\{")
_LINE = re.compile(r'\{\s*(?:LogLevel::k(\w+)|[^{};]*?)\s*,\s*"([a-z0-9_.]+)"\s*,')
# The crash handler composes its line itself.
_CRASH = re.compile(r"\[(crash)\]")
_CRASH_FILE = "common/program/crash_handler.cc"
_LITERAL = re.compile(r'\s*"([^"]*)"')
# The declaration of such a function, or a call that passes on the event of its caller.
_PASSED_ON = re.compile(r"\s*(?:event|LogEvent)\b")
_ROW = re.compile(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$")
_ANY_LEVEL = "any"


def _is_product(path):
    folders = path.split("/")
    return not (path.endswith(("_test.cc", "_bench.cc")) or folders[0] in ("tests", "benchmarks") or "testing" in folders)


def _sources(tree):
    """Yields (event or None, level, path, line) of every place that logs. None: the event is no literal there."""
    for path in tree.cpp():
        if not _is_product(path):
            continue
        text = tree.text(path)
        if path != _CRASH_FILE and not _CALL.search(text) and not _LOG_LINE.search(text):
            continue
        code = cpp.blank(text, strings=False)
        blank = cpp.blank(text)
        for match in _CALL.finditer(blank):
            line = cpp.line_of(text, match.start())
            first = code[match.end() : match.end() + 200]
            literal = _LITERAL.match(first)
            if literal:
                yield literal.group(1), _LEVELS[match.group(1)], path, line
            elif not _PASSED_ON.match(first):
                yield None, "", path, line
        for match in _LOG_LINE.finditer(blank):
            found = _LINE.match(code, match.end() - 1)
            if found:
                level = found.group(1)
                yield found.group(2), level.lower() if level else _ANY_LEVEL, path, cpp.line_of(text, match.start())
        if path == _CRASH_FILE:
            match = _CRASH.search(text)
            if match:
                yield match.group(1), "error", path, cpp.line_of(text, match.start())


def run(tree):
    findings = []
    places = {}
    for event, level, path, line in _sources(tree):
        if event is None:
            findings.append(Finding(path, line, 'the event is no literal; write it as the first argument: "disk.full"'))
        elif event in places:
            findings.append(
                Finding(path, line, f"event {event} is logged at {places[event][1]}:{places[event][2]}, too; name each "
                        "event once, or log both from one function")
            )
        else:
            places[event] = (level, path, line)
    text = tree.text(DOCUMENT)
    if text is None:
        return findings + ([Finding(DOCUMENT, 0, "the list of the events is missing")] if places else [])
    rows = {}
    for number, line in enumerate(text.split("\n"), 1):
        row = _ROW.match(line)
        if not row:
            continue
        event, level = row.group(1), row.group(2).strip()
        if event in rows:
            findings.append(Finding(DOCUMENT, number, f"event {event} has two rows; remove one"))
        elif event not in places:
            findings.append(Finding(DOCUMENT, number, f"no source logs the event {event}; remove the row"))
        elif level != places[event][0]:
            findings.append(Finding(DOCUMENT, number, f"the level of {event} is {places[event][0]}, not {level}"))
        rows[event] = number
    for event, (_, path, line) in places.items():
        if event not in rows:
            findings.append(Finding(path, line, f"event {event} has no row in {DOCUMENT}; add what it means and what to do"))
    return findings
