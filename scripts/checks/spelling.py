"""Spelling, by codespell."""

import re
import subprocess

from checks.tree import Finding

WHAT = "spelling"

ALLOWED = "scripts/checks/spelling_allowed.txt"
_LINE = re.compile(r"^(.*?):(\d+): (.*)$")


def run(tree):
    paths = [path for path, text in tree.texts() if path not in ("LICENSE", ALLOWED) and not path.endswith((".csv", ".min.js"))]
    command = ["codespell"]
    if tree.exists(ALLOWED):
        command += ["--ignore-words", ALLOWED]
    result = subprocess.run([*command, "--", *paths], cwd=tree.root, capture_output=True, text=True)
    if result.returncode not in (0, 65):  # 65: it found something
        raise RuntimeError(f"codespell failed: {result.stderr.strip()}")
    findings = []
    for line in result.stdout.splitlines():
        match = _LINE.match(line)
        if match:
            path = match.group(1).removeprefix("./")
            findings.append(Finding(path, int(match.group(2)), f"spelling: {match.group(3)} (if it is right: {ALLOWED})"))
    return findings
