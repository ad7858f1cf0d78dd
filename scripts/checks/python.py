"""Faults of Python scripts that a reader of the source can prove: undefined names, unused imports, bad formats."""

import re
import subprocess

from checks.tree import Finding

WHAT = "undefined names and unused imports in Python scripts"

_LINE = re.compile(r"^(.*?):(\d+):(?:\d+:)? (.*)$")


def run(tree):
    paths = [path for path, text in tree.texts() if path.endswith(".py") or re.match(r"#!.*\bpython", text)]
    if not paths:
        return []
    result = subprocess.run(["pyflakes3", *paths], cwd=tree.root, capture_output=True, text=True)
    findings = []
    for line in (result.stdout + result.stderr).splitlines():
        match = _LINE.match(line)
        if match:
            findings.append(Finding(match.group(1), int(match.group(2)), match.group(3)))
    if result.returncode != 0 and not findings:
        raise RuntimeError(f"pyflakes3 failed: {result.stderr.strip()}")
    return findings
