"""Format, by clang-format."""

import concurrent.futures
import os
import re
import subprocess

from checks.tree import Finding

WHAT = "format"

_BATCH = 16
_LINE = re.compile(r"^(.*?):(\d+):\d+: error: code should be clang-formatted")


def _format(tree, paths):
    command = ["clang-format-19", "--dry-run", "-Werror", "--ferror-limit=1", *paths]
    result = subprocess.run(command, cwd=tree.root, capture_output=True, text=True)
    findings = [
        Finding(match.group(1), int(match.group(2)), f"not formatted: run clang-format-19 -i {match.group(1)}")
        for match in map(_LINE.match, result.stderr.splitlines())
        if match
    ]
    if result.returncode != 0 and not findings:
        raise RuntimeError(f"clang-format-19 failed: {result.stderr.strip()}")
    return findings


def run(tree):
    paths = tree.cpp()
    batches = [paths[i : i + _BATCH] for i in range(0, len(paths), _BATCH)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda batch: _format(tree, batch), batches)
    return [finding for findings in found for finding in findings]
