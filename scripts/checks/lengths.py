"""Length of source files."""

from checks.tree import CODE_ROOTS, Finding

WHAT = "source files of at most 600 lines"

MAX_LINES = 600
_ENDINGS = (".h", ".cc", ".py", ".proto", ".cmake", "CMakeLists.txt")


def run(tree):
    findings = []
    for path, text in tree.texts():
        if not (path.endswith(_ENDINGS) and path.split("/")[0] in CODE_ROOTS + ("scripts", "cmake")):
            continue
        lines = text.count("\n")
        if lines > MAX_LINES:
            findings.append(Finding(path, 0, f"{lines} lines, more than {MAX_LINES}: split it by topic"))
    return findings
