"""Counts the phrases that make a sentence hard to read. Each folder has a ceiling, which can only be lowered.

idioms.txt has one phrase a line, as an extended regular expression. The check counts phrases in comments and string
literals of C++, and in all other text files. idioms_ceilings.txt has a folder and its ceiling in each line; the ceiling
of other folders is 0. `scripts/check --record idioms` lowers the ceilings to the present counts.
"""

import collections
import pathlib
import re

from checks import cpp
from checks.tree import Finding

WHAT = "no more hard phrases (scripts/checks/idioms.txt) in a folder than its ceiling allows"

_PHRASES = pathlib.Path(__file__).with_name("idioms.txt")
_CEILINGS = "scripts/checks/idioms_ceilings.txt"
_IGNORED = ("LICENSE", "scripts/checks/idioms.txt", _CEILINGS)
_MAX_PLACES = 8


def _pattern():
    lines = [line.strip() for line in _PHRASES.read_text(encoding="utf-8").splitlines()]
    phrases = [line.replace(" ", r"\s+") for line in lines if line and not line.startswith("#")]
    return re.compile(r"\b(?:" + "|".join(phrases) + r")\b", re.IGNORECASE)


def _prose(path, text):
    """Returns the prose of a file at unchanged offsets and lines. A phrase may continue in the next line."""
    if path.endswith((".h", ".cc")):
        code = cpp.blank(text)
        text = "".join(c if c == "\n" or c != b else " " for c, b in zip(text, code))
        return re.sub(r"//+", lambda match: " " * len(match.group()), text)
    return re.sub(r"^[ \t]*#+", lambda match: " " * len(match.group()), text, flags=re.MULTILINE)


def _places(tree):
    """Returns the places of the phrases, as texts, by folder."""
    pattern, places = _pattern(), collections.defaultdict(list)
    for path, text in tree.texts():
        if path in _IGNORED:
            continue
        for match in pattern.finditer(_prose(path, text)):
            phrase = " ".join(match.group().split())
            places[str(pathlib.PurePosixPath(path).parent)].append(f"{path}:{cpp.line_of(text, match.start())} '{phrase}'")
    return places


def _ceilings(tree):
    lines = (tree.text(_CEILINGS) or "").splitlines()
    return {folder: int(count) for folder, count in (line.rsplit(None, 1) for line in lines)}


def run(tree):
    places, ceilings, findings = _places(tree), _ceilings(tree), []
    for folder in sorted(places.keys() | ceilings.keys()):
        found, ceiling = places.get(folder, []), ceilings.get(folder, 0)
        if len(found) > ceiling:
            listed = ", ".join(found[:_MAX_PLACES]) + (", ..." if len(found) > _MAX_PLACES else "")
            findings.append(Finding(folder, 0, f"{len(found)} hard phrases, {ceiling} allowed: write plainer sentences; {listed}"))
        elif len(found) < ceiling:
            findings.append(
                Finding(folder, 0, f"{len(found)} hard phrases, fewer than the ceiling of {ceiling}: run scripts/check --record idioms")
            )
    return findings


def record(tree):
    """Lowers the ceilings to the present counts. Returns a summary for people."""
    places, ceilings = _places(tree), _ceilings(tree)
    first = tree.text(_CEILINGS) is None
    kept = {folder: len(found) if first else min(len(found), ceilings.get(folder, 0)) for folder, found in places.items()}
    lines = [f"{folder} {count}\n" for folder, count in sorted(kept.items()) if count]
    tree.write(_CEILINGS, "".join(lines))
    return f"{sum(kept.values())} hard phrases allowed in {len(lines)} folders, before {sum(ceilings.values())}: commit {_CEILINGS}"
