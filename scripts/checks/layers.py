"""Includes follow the layers of the layout."""

import collections
import re

from checks import cpp
from checks.tree import CODE_ROOTS, Finding

WHAT = "includes follow the layers"

# Folder of common/ → the folders of common/ that it may include.
_COMMON = {
    "base": (),
    "memory": ("base",),
    "snapshot": ("base",),
    "schema": ("base",),
    "expression": ("base", "schema"),
    "result": ("base", "schema", "expression"),
    "wire": ("base", "snapshot", "schema"),
    "latency": ("base", "wire"),
    "fiber": ("base",),
    "net": ("base", "memory", "fiber"),
    "rpc": ("base", "wire", "latency", "fiber", "net"),
    "admin": ("base", "latency"),
    "program": ("base",),
    "command": ("base", "program"),
    "testing": ("base",),
}
# Root → the product roots whose public headers it may include.
_ROOTS = {
    "common": (),
    "storage-node": (),
    "bdtree": (),
    "client-lib": ("bdtree",),
    "commit-manager": ("bdtree",),
    "deploy": ("storage-node", "commit-manager", "client-lib", "bdtree"),
}
# Root → the folders of common/ that it may include. A root that is not in the table may include all of them.
_OF_COMMON = {"bdtree": ("base", "fiber", "schema", "snapshot", "wire")}
_PUBLIC = {"storage": "storage-node", "commit": "commit-manager", "bdtree": "bdtree", "client": "client-lib"}
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
# Tests and benchmarks may include internal headers of the code that they test or measure.
_TEST = re.compile(r"/testing/|_(test|stress|bench)\.(cc|h)$")
_EVERYWHERE = re.compile(r"^(tests|benchmarks)/|" + _TEST.pattern)


def _target(included):
    """Returns (root, folder of common or None, public?) of the file that an include names. None: it is not a file of
    the tree."""
    parts = included.split("/")
    if parts[0] == "loam" and len(parts) > 2 and parts[1] in _PUBLIC:
        return _PUBLIC[parts[1]], None, True
    if parts[0] in CODE_ROOTS:
        return parts[0], parts[1] if parts[0] == "common" else None, "include" in parts
    return None


def _breach(tree, path, quote, included):
    """Returns the fault of one include, or None."""
    if included.startswith(("./", "../")):
        return "includes start at the root of the tree"
    target = _target(included)
    if target is None:
        folder = path.rsplit("/", 1)[0]
        if quote == '"' and tree.exists(f"{folder}/{included}"):
            return f"includes start at the root of the tree: \"{folder}/{included}\""
        return None
    if _EVERYWHERE.search(path):
        return None
    root, folder, public = target
    mine = path.split("/")[0]
    if included.split("/")[1] == "testing":
        return f"product code must not include files of {included.split('/')[0]}/testing"
    if mine == "common" and root == "common":
        own = path.split("/")[1]
        if folder != own and folder not in _COMMON.get(own, ()):
            return f"common/{own} may include only {', '.join(_COMMON.get(own, ())) or 'nothing'} of common"
        return None
    if root == "common" and mine in _OF_COMMON and folder not in _OF_COMMON[mine]:
        return f"{mine} may include only {', '.join(_OF_COMMON[mine])} of common"
    if root == "common" or root == mine:
        return None
    if root not in _ROOTS.get(mine, ()):
        return f"{mine} does not stand above {root}"
    if not public:
        return f"{included} is private to {root}: include a header of {root}/include as <loam/...>"
    return None


def _cycles(includes):
    """Yields a finding for each pair of folders that include each other, directly or through others. `includes`: (path,
    line, header) of each include in product code."""
    arrows = collections.defaultdict(dict)
    for path, line, header in includes:
        source, target = path.rsplit("/", 1)[0], header.rsplit("/", 1)[0]
        if source != target:
            arrows[source].setdefault(target, (path, line, header))
    for source in sorted(arrows):
        for target, (path, line, header) in sorted(arrows[source].items()):
            if source < target and source in _reached(arrows, target):
                yield Finding(path, line, f"#include {header}: {source} and {target} include each other; move the common part below them")


def _reached(arrows, folder):
    """Returns all folders that `folder` includes, directly or through others."""
    reached, pending = set(), [folder]
    while pending:
        for target in arrows.get(pending.pop(), {}):
            if target not in reached:
                reached.add(target)
                pending.append(target)
    return reached


def run(tree):
    findings, includes = [], []
    public = {path.split("/include/", 1)[1]: path for path in tree.cpp() if "/include/" in path}
    for path in tree.cpp():
        text = tree.text(path) or ""
        for match in _INCLUDE.finditer(text):
            line, included = cpp.line_of(text, match.start()), match.group(2)
            breach = _breach(tree, path, match.group(1), included)
            if breach:
                findings.append(Finding(path, line, f"#include {included}: {breach}"))
            header = included if tree.exists(included) else public.get(included)
            if header and not _TEST.search(path):
                includes.append((path, line, header))
    return findings + list(_cycles(includes))
