"""Who may include whom: the arrows of the layout."""

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
    "wire": ("base", "snapshot", "schema"),
    "fiber": ("base",),
    "net": ("base", "memory", "fiber"),
    "rpc": ("base", "wire", "fiber", "net"),
    "admin": ("base",),
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
# Root → all that it may include of common/; a root that is not named here may include any of it.
_OF_COMMON = {"bdtree": ("base", "fiber", "schema", "snapshot", "wire")}
_PUBLIC = {"storage": "storage-node", "commit": "commit-manager", "bdtree": "bdtree", "client": "client-lib"}
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
# Tests and measurements look inside whatever they test and measure.
_EVERYWHERE = re.compile(r"^(tests|benchmarks|common/testing)/|_(test|stress|bench|test_\w+)\.(cc|h)$")


def _test_aids(tree):
    """Headers that tests include and no product source reaches: they may use what tests may use."""
    includes = {path: {name for _, name in _INCLUDE.findall(tree.text(path) or "")} for path in tree.cpp()}
    product, pending = set(), [p for p in includes if p.endswith(".cc") and not _EVERYWHERE.search(p)]
    while pending:
        for name in includes.get(pending.pop(), set()) - product:
            product.add(name)
            pending.append(name)
    return {name for path in includes if path not in product for name in includes[path]} - product


def _target(included):
    """(root, folder of common or None, public?) that an include leads to, or None if it is not ours."""
    parts = included.split("/")
    if parts[0] == "loam" and len(parts) > 2 and parts[1] in _PUBLIC:
        return _PUBLIC[parts[1]], None, True
    if parts[0] in CODE_ROOTS:
        return parts[0], parts[1] if parts[0] == "common" else None, "include" in parts
    return None


def _breach(tree, path, quote, included, aids):
    """What is wrong with one include, or None."""
    if included.startswith(("./", "../")):
        return "includes start at the root of the tree"
    target = _target(included)
    if target is None:
        folder = path.rsplit("/", 1)[0]
        if quote == '"' and tree.exists(f"{folder}/{included}"):
            return f"includes start at the root of the tree: \"{folder}/{included}\""
        return None
    if _EVERYWHERE.search(path) or path in aids:
        return None
    root, folder, public = target
    mine = path.split("/")[0]
    if folder == "testing":
        return "product code includes nothing of common/testing"
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


def run(tree):
    findings = []
    aids = _test_aids(tree)
    for path in tree.cpp():
        text = tree.text(path) or ""
        for match in _INCLUDE.finditer(text):
            breach = _breach(tree, path, match.group(1), match.group(2), aids)
            if breach:
                findings.append(Finding(path, cpp.line_of(text, match.start()), f"#include {match.group(2)}: {breach}"))
    return findings
