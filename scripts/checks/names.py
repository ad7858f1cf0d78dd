"""File and folder names."""

import re

from checks.tree import Finding

WHAT = "file and folder names"

_EMPTY_WORDS = {"utils", "util", "helpers", "helper", "misc"}
_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_NUMBERED = re.compile(r"_(v\d+|old|new|copy|final|orig|bak)$")
# The words in the names of documents, scripts and folders may be joined by dashes. Code files are in snake_case.
_DASHED = re.compile(r"[A-Za-z0-9]+([._-][A-Za-z0-9]+)*")
_CODE_ENDINGS = (".h", ".cc", ".py", ".proto", ".cmake")


def run(tree):
    findings = []
    folders = set()
    for path in tree.paths:
        *parents, name = path.split("/")
        for depth, folder in enumerate(parents):
            folders.add(("/".join(parents[: depth + 1]), folder))
        stem, dot, ending = name.partition(".")
        if stem in _EMPTY_WORDS or name in ("common.h", "common.cc"):
            findings.append(Finding(path, 0, f"'{stem}' says nothing: name the file after what it holds"))
        elif name.endswith(_CODE_ENDINGS):
            if not _SNAKE.fullmatch(stem) and stem != "__init__":
                findings.append(Finding(path, 0, "code files are named in snake_case: lower case, words joined by _"))
            elif _NUMBERED.search(stem):
                findings.append(Finding(path, 0, "a numbered variant of a file: replace the earlier file instead"))
        elif ending in ("cpp", "cxx", "hpp", "hh", "c"):
            findings.append(Finding(path, 0, "C++ files end in .h and .cc"))
        elif not _DASHED.fullmatch(name.lstrip(".")):
            findings.append(Finding(path, 0, "use letters, digits, '-', '_' and '.' in file names"))
    for path, folder in sorted(folders):
        if folder in _EMPTY_WORDS:
            findings.append(Finding(path, 0, f"'{folder}' says nothing: name the folder after what it holds"))
    return findings
