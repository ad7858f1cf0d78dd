"""Length of source files, and of lines of C++ and documents."""

import re

from checks.tree import CODE_ROOTS, Finding

WHAT = "source files of at most 600 lines, lines of C++ and documents of at most 120 columns"

MAX_LINES = 600
MAX_COLUMNS = 120
_ENDINGS = (".h", ".cc", ".py", ".proto", ".cmake", "CMakeLists.txt")
# Lines that cannot be broken: a row of a table, and a line with one long word, such as a link.
_UNBREAKABLE = re.compile(r"^\s*\||^\s*\S+$")


def _long_lines(path, text):
    """Yields a finding for each line that is too long. The formatter breaks lines of code, but not of comments,
    drawings and documents."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= path.endswith(".md") and line.lstrip().startswith("```")
        if len(line) > MAX_COLUMNS and not (path.endswith(".md") and (fenced or _UNBREAKABLE.match(line))):
            yield Finding(path, number, f"{len(line)} columns, more than {MAX_COLUMNS}: break the line")


def run(tree):
    findings = []
    for path, text in tree.texts():
        if path.endswith((".h", ".cc", ".md")):
            findings.extend(_long_lines(path, text))
        if not (path.endswith(_ENDINGS) and path.split("/")[0] in CODE_ROOTS + ("scripts", "cmake")):
            continue
        lines = text.count("\n")
        if lines > MAX_LINES:
            findings.append(Finding(path, 0, f"{lines} lines, more than {MAX_LINES}: split it by topic"))
    return findings
