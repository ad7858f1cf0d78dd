"""Claims of the documents that something is absent. Each names an identifier or a path that would make it false."""

import fnmatch
import re

from checks import cpp
from checks.tree import CODE_ROOTS, Finding

WHAT = "documents that say 'later' or 'not yet' name the absent thing, and the tree lacks it"

# Documents that describe one day; their claims were true when they were written.
_DATED = ("CHANGELOG.md", "docs/decisions/", "docs/results/")
# Documents that are made from the code: their texts describe states, and a test compares them with the code.
_MADE = ("docs/metrics.md",)

_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_CODE_SPAN = re.compile(r"`[^`\n]*`")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_MARKER = re.compile(r"<!--\s*absent:(.*?)-->", re.DOTALL)
# A name in a claim: a path, or an identifier in which `*` stands for any letters.
_NAME = re.compile(r"[\w*]+|[\w-][\w./-]*[/.][\w./-]*")
# A table row, a list item and a heading begin a unit, and so does the line after an empty line.
_BEGINS = re.compile(r"\s*(?:\||[*+-]\s|\d+[.)]\s|#{1,6}\s|$)")

_NEGATION = r"\b(?:no(?:t|ne|body|thing)?|never|cannot)\b"
# Each pattern is a form of "the tree does not have this today". "Every later snapshot", "an epoch later" and states of
# the past ("nothing was sent yet") are not claims.
_CLAIMS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(?<!\bthat )(?<!\bwho )(?<!\bwhich )\b(?:comes?|follows?|(?:is|are|be) (?:added|built|done)) later\b",
        r"\|[ *_]*(?:later|partly|planned|missing)\b",
        r"\bnot (?:yet )?(?:built|implemented|supported)\b",
        r"\bnot yet(?=\s*(?:[.,;:!?|)]|$))",
        rf"{_NEGATION}(?! yet)(?:(?!\b(?:was|were|had)\b|{_NEGATION})[^.;:|]){{1,120}}?(?<!,)\s\byet\b",
        r"\b(?:has|have|is|are) yet to\b",
        r"\b(?:will|shall) be (?:added|built|implemented|supported|possible)\b",
        r"\bplanned\b",
        r"\b(?:for now|for the time being|so far only|still missing|some day)\b",
    )
)


def _spaces(match):
    return re.sub(r"[^\n]", " ", match.group())


def _units(text):
    """Yields (offset, text) of every table row, list item, heading and paragraph."""
    begin, offset = 0, 0
    for line in text.splitlines(keepends=True):
        if _BEGINS.match(line) and offset > begin:
            yield begin, text[begin:offset]
            begin = offset
        offset += len(line)
    yield begin, text[begin:]


class _Names:
    """The names in the tree: its paths, and the identifiers of its code (without comments and string literals)."""

    def __init__(self, tree):
        self._tree = tree
        self._places = None  # identifier in lower case -> the first file that has it

    def _identifiers(self):
        if self._places is None:
            self._places = {}
            for path in self._tree.paths:
                if path.split("/")[0] not in CODE_ROOTS or not path.endswith((".h", ".cc", ".proto")):
                    continue
                for word in set(re.findall(r"[A-Za-z_]\w*", cpp.blank(self._tree.text(path) or ""))):
                    self._places.setdefault(word.lower(), path)
        return self._places

    def place_of(self, name):
        """Returns the path where `name` is in the tree, or None. `*` in an identifier stands for any letters; case does
        not matter."""
        if "/" in name or "." in name:
            return name if self._tree.exists(name) else None
        known = self._identifiers()
        if "*" not in name:
            return known.get(name.lower())
        return next((known[word] for word in fnmatch.filter(sorted(known), name.lower())), None)


def run(tree):
    findings = []
    names = _Names(tree)
    for path, text in tree.texts():
        if not path.endswith(".md") or path.startswith(_DATED + _MADE):
            continue
        shown = _CODE_SPAN.sub(_spaces, _FENCE.sub(_spaces, text))
        for begin, unit in _units(shown):
            markers = list(_MARKER.finditer(unit))
            for marker in markers:
                line = cpp.line_of(text, begin + marker.start())
                if not marker.group(1).split():
                    findings.append(Finding(path, line, "'absent:' names nothing: name a path or an identifier"))
                for name in marker.group(1).split():
                    if not _NAME.fullmatch(name):
                        findings.append(Finding(path, line, f"'absent: {name}' names neither a path nor an identifier"))
                        continue
                    place = names.place_of(name)
                    if place:
                        problem = f"says that '{name}' is absent, but the tree has it ({place}): correct the text and the marker"
                        findings.append(Finding(path, line, problem))
            if markers:
                continue
            prose = _COMMENT.sub(_spaces, unit).replace("\n", " ")
            claims = [match for claim in _CLAIMS for match in claim.finditer(prose)]
            if claims:
                first = min(claims, key=lambda match: match.start())
                words = " ".join(first.group().strip("| ").split())
                problem = (
                    f"claims that something is absent ('{words}'): correct it, or name in the same paragraph or row a path"
                    " or an identifier of the code that would make it false: <!-- absent: NAME -->"
                )
                findings.append(Finding(path, cpp.line_of(text, begin + first.start()), problem))
    return findings
