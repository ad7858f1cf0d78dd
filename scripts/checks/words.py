"""Words that must not occur in the tree."""

import re

from checks import cpp
from checks.tree import Finding

WHAT = "no leftover marks, no paths or hosts of one machine"

# Each pattern is written so that it does not match itself.
_RULES = (
    (re.compile(r"\b(?:T[O]DO|F[I]XME|X[X]X|H[A]CK)\b"), "a leftover mark: do it now, or open an issue and say why here"),
    (
        re.compile(r"(?<![\w.$}~-])/(?:work|home|root|mnt|Users)/[\w.-]+"),
        "a path of one machine: use a path relative to the tree, an option or a temporary folder",
    ),
    (
        re.compile(
            r"\b(?:\w+\.)?(?:debian\.(?:org|net)|ubuntu\.com|pypi\.org|pythonhosted\.org|crates\.io|npmjs\.(?:org|com)"
            r"|golang\.org|docker\.io|quay\.io|ghcr\.io|pkg\.dev)\b"
        ),
        "a registry's host name: take it from the machine's own configuration at run time",
    ),
)


def run(tree):
    findings = []
    for path, text in tree.texts():
        if path == "LICENSE":
            continue
        for pattern, message in _RULES:
            for match in pattern.finditer(text):
                findings.append(Finding(path, cpp.line_of(text, match.start()), f"'{match.group()}' is {message}"))
    return findings
