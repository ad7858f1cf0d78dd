"""Subjects of the last commits: `area: imperative`, with a body that says why."""

import re

from checks.tree import CODE_ROOTS, Finding

WHAT = "commits since the recorded one: `area: imperative` in 72 characters, and a body that says why"

# The commit after which the rule holds.
_RECORD = "scripts/checks/commits_since.txt"
_MAX_SUBJECT = 72
# Areas that are not folders of a code root: areas of the whole tree, and parts with a customary short name.
_OTHER_AREAS = ("all", "build", "ci", "docs", "scripts", "checks", "lint", "mutants", "sim", "README", "HACKING", "CHANGELOG")
_SUBJECT = re.compile(r"^(?P<areas>[\w./-]+(?:, [\w./-]+)*): (?P<what>\S.*)$")
_NO_IMPERATIVE = re.compile(
    r"^(?!(?:bring|need|feed|embed|seed|shed|speed)\b)(?:\w+(?:ing|ed)|adds|fixes|makes|removes|the|an?)\b", re.IGNORECASE
)


def _breaches(areas, subject, body):
    """Yields the faults of the message of one commit."""
    if len(subject) > _MAX_SUBJECT:
        yield f"the subject has {len(subject)} characters, more than {_MAX_SUBJECT}"
    match = _SUBJECT.match(subject)
    if not match:
        yield "the subject is not `area: imperative`"
        return
    unknown = [area for area in match["areas"].split(", ") if area.split("/")[0] not in areas]
    if unknown:
        yield f"'{', '.join(unknown)}' is not a folder of the tree"
    if _NO_IMPERATIVE.match(match["what"]):
        yield f"'{match['what'].split()[0]}' is not an imperative"
    if not body.strip():
        yield "the body does not say why"


def run(tree):
    """Returns the findings in the commits after the recorded one. It finds nothing without a git repository and in a
    shallow clone."""
    recorded = (tree.text(_RECORD) or "").strip()
    output = tree.git("log", "--no-merges", "--format=%h%x00%s%x00%b%x01", f"{recorded}..HEAD") if recorded else None
    if output is None:
        return []
    areas = {*CODE_ROOTS, *_OTHER_AREAS} | {part for path in tree.paths for part in path.split("/")[:-1]}
    findings = []
    for commit in filter(None, (entry.strip("\n") for entry in output.split("\x01"))):
        name, subject, body = commit.split("\0")
        findings += [Finding(f"commit {name}", 0, f'"{subject}": {breach}') for breach in _breaches(areas, subject, body)]
    return findings
