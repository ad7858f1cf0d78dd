"""Tests do not sleep."""

import re

from checks import cpp
from checks.tree import Finding

WHAT = "tests poll with a deadline instead of sleeping"

# Matches only sleeps of threads. sleep_for() of a fiber scheduler is a function under test, with a clock of the test.
_CPP_SLEEP = re.compile(
    r"this_thread::sleep_\w+\s*\(|(?<![\w.>:])(?:::)?(?:sleep_for|sleep_until|usleep|nanosleep|clock_nanosleep|sleep)\s*\("
)
_PYTHON_SLEEP = re.compile(r"\b(?:time\.)?sleep\(")
_ESCAPE = "poll interval"


def run(tree):
    findings = []
    for path, text in tree.texts():
        is_test = re.search(r"_test\.(cc|py)$", path) or path.startswith(("tests/", "common/testing/"))
        if not is_test or not path.endswith((".h", ".cc", ".py")):
            continue
        code = cpp.blank(text) if not path.endswith(".py") else text
        for match in (_PYTHON_SLEEP if path.endswith(".py") else _CPP_SLEEP).finditer(code):
            line = cpp.line_of(text, match.start())
            if _ESCAPE not in cpp.line_text(text, line):
                findings.append(
                    Finding(path, line, "a test sleeps: poll a condition with a deadline (the wait in the loop that polls"
                            " has the comment 'poll interval')")
                )
    return findings
