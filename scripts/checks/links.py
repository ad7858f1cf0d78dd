"""Links and excerpts of the documents, and files, tests, identifiers and options that documents and sources name."""

import ast
import re

from checks import cpp
from checks.tree import CODE_ROOTS, Finding

WHAT = "links, excerpts, and the files, tests, identifiers and options that documents name, exist"

_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n.*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
# A block of code that is copied from a file: ```LANGUAGE from: FILE
_EXCERPT = re.compile(r"^```\w+ from: (?P<file>\S+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
# Names after a link to their source: [file.cc](../path/file.cc): `Scope::name`, `name`
_PLACES = re.compile(r"\]\((?P<file>[^)\s]+)\.(?:h|cc)\):(?P<names>(?:\s*`[^`]+`[,;]?)+)")
_CODE_SPAN = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^\[[^\]]+\]:\s+(\S+)", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*\s*$", re.MULTILINE)
_ANCHOR = re.compile(r"<a\s+(?:id|name)=\"([^\"]+)\"")
_DOCUMENT = re.compile(r"(?<![\w/.-])(docs/[\w/-]+\.md)\b")
_FILE_SPAN = re.compile(
    r"`((?:%s|docs|scripts|cmake)/[\w./-]+\.(?:h|cc|py|md|cmake|proto|txt))`" % "|".join(CODE_ROOTS)
)
# `Suite.Case` of a C++ test, `Class.test_name` of a Python one.
_TEST_SPAN = re.compile(r"`([A-Z]\w*\.(?:[A-Z]|test_)\w*)`")
# Names inside a code span that can only be names of the code: kConstant, CamelCase, Scope::name, call(), and `Word`
# alone.
_NAME = re.compile(
    r"\bk[A-Z]\w+|\b[A-Z][a-z0-9]+[A-Z]\w*|\b[A-Z]\w*(?=::)|(?<=::)\w+|\b[a-z]\w*(?=\(\))|(?<=^)[A-Z][a-z]+(?=$)"
)
_OPTION = re.compile(r"(?<!\w)--([a-z][\w-]+)")
# Documents that describe the tree of one day.
_DATED = ("CHANGELOG.md", "docs/decisions/", "docs/results/")
_CPP_TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)\s*\)", re.MULTILINE)


def _tests(tree):
    """Returns the names of all tests, as documents write them."""
    names = set()
    for path, text in tree.texts():
        if path.endswith("_test.cc"):
            names.update(".".join(test) for test in _CPP_TEST.findall(text))
        elif path.endswith("_test.py"):
            for part in ast.parse(text).body:
                if isinstance(part, ast.ClassDef):
                    names.update(f"{part.name}.{f.name}" for f in part.body if isinstance(f, ast.FunctionDef))
    return names


def _known(tree):
    """Returns every word of all files except documents, and the names of options with and without their dashes."""
    known = set()
    for path, text in tree.texts():
        if not path.endswith(".md"):
            known.update(re.findall(r"[A-Za-z_]\w*", text))
            known.update(re.findall(r"(?<![\w-])(?:--)?([a-z]\w*(?:-\w+)+)", text))
    return known


def _unknown_names(text, known):
    """Yields (match of the code span, name) of every identifier or option of our programs that the tree lacks."""
    for span in _CODE_SPAN.finditer(_FENCE.sub(_spaces, text)):
        code = span.group().strip("`")
        names = _NAME.findall(code)
        if code.startswith(("--", "loam")):
            names += _OPTION.findall(code)
        yield from ((span, name) for name in names if name not in known)


def _spaces(match):
    return re.sub(r"[^\n]", " ", match.group())


def _slugs(text):
    """Returns the anchors of a Markdown page: those of its headings, as GitHub spells them, and the explicit ones."""
    slugs = set(_ANCHOR.findall(text))
    for heading in _HEADING.findall(_FENCE.sub(_spaces, text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        unique, n = slug, 0
        while unique in slugs:
            n += 1
            unique = f"{slug}-{n}"
        slugs.add(unique)
    return slugs


def _false_excerpts(tree, page, text):
    """Yields a finding for each excerpt that does not occur in the file it names."""
    for match in _EXCERPT.finditer(text):
        file = match["file"]
        if not tree.exists(file):
            problem = f"has an excerpt from '{file}', which does not exist: fix the name"
        elif match["text"] not in (tree.root / file).read_text(encoding="utf-8"):
            problem = f"has an excerpt that is not in '{file}': copy it again"
        else:
            continue
        yield Finding(page, cpp.line_of(text, match.start()), problem)


def _misplaced_names(tree, page, text):
    """Yields a finding for each name behind a link to a source that this source and its header do not have."""
    for match in _PLACES.finditer(text):
        file = (tree.root / page).parent / match["file"]
        code = "".join(f.read_text(encoding="utf-8") for f in map(file.with_suffix, (".h", ".cc")) if f.exists())
        for span in _CODE_SPAN.findall(match["names"]):
            name = (re.findall(r"\w+", span) or [""])[-1]
            if not re.search(rf"\b{name}\b", code):
                problem = f"names '{name}' in {file.name}, which does not have it: name the file that has it"
                yield Finding(page, cpp.line_of(text, match.start()), problem)


def _check_link(tree, page, target):
    """Returns the fault of a link, or None."""
    if re.match(r"[a-z][a-z0-9+.-]*:", target):  # a link to another site, which a build cannot reach
        return None
    path, _, anchor = target.partition("#")
    if path.startswith("/"):
        return f"link '{target}' starts at the root of the disk: make it relative to this page"
    resolved = (tree.root / page).parent.joinpath(path).resolve() if path else tree.root / page
    if not resolved.is_relative_to(tree.root):
        return f"link '{target}' leaves the tree: only files of the tree can be linked"
    if not resolved.exists():
        return f"link '{target}' leads nowhere: fix the path or write the page"
    if anchor and resolved.suffix == ".md":
        if anchor not in _slugs(resolved.read_text(encoding="utf-8")):
            return f"link '{target}': the page has no heading '#{anchor}'"
    return None


def run(tree):
    findings = []
    tests = _tests(tree)
    known = _known(tree)
    for path, text in tree.texts():
        named = []
        rest = text
        if path.endswith(".md"):
            prose = _CODE_SPAN.sub(_spaces, _FENCE.sub(_spaces, text))
            for pattern in (_LINK, _REFERENCE):
                for match in pattern.finditer(prose):
                    problem = _check_link(tree, path, match.group(1))
                    if problem:
                        findings.append(Finding(path, cpp.line_of(text, match.start()), problem))
                rest = pattern.sub(_spaces, rest)  # so that each link is reported once
            findings += _false_excerpts(tree, path, text)
            findings += _misplaced_names(tree, path, text)
            named += _FILE_SPAN.finditer(text)
            for match in _TEST_SPAN.finditer(text):
                if match.group(1) not in tests:
                    problem = f"names the test '{match.group(1)}', which does not exist: fix the name or write it"
                    findings.append(Finding(path, cpp.line_of(text, match.start()), problem))
            if not path.startswith(_DATED):
                for span, name in _unknown_names(text, known):
                    problem = f"names '{name}', which the code does not have: write today's name"
                    findings.append(Finding(path, cpp.line_of(text, span.start()), problem))
        if path.endswith((".md", ".h", ".cc", ".cmake", "CMakeLists.txt", "Makefile")):
            named += _DOCUMENT.finditer(rest)
        for file, line in sorted({(m.group(1), cpp.line_of(text, m.start())) for m in named}):
            if not tree.exists(file):
                findings.append(Finding(path, line, f"names '{file}', which does not exist: fix the name or write it"))
    return findings
