"""Lints by clang-tidy the sources that have changed since a commit at which the whole tree was clean.

lint_clean.txt has this commit, and the version of clang-tidy that found the tree clean. The check lints the sources
that differ from the commit, or that include a header that differs, directly or through others. It lints all sources if
a .clang-tidy, this program or the version of clang-tidy has changed, or if the commit is not in the history. `make
lint` lints the whole tree and records the present commit. Only `make lint` notices a changed compile command.

In addition, the check records clean contents for all clones of a user, as ccache does. Each content has an empty file
in $XDG_CACHE_HOME/loam/tidy (~/.cache/loam/tidy), which is removed after a month without use. A content is the source,
the headers of the tree that it reaches, its compile command, every .clang-tidy and the version of clang-tidy.

Docstrings (///) are no part of a content and no change, because no check of clang-tidy reads them. All other comments
are: they can hold NOLINT or the name of an argument, and they count as lines of a function.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

from checks.tree import CODE_ROOTS, Finding

WHAT = "lint (clang-tidy)"

_DOCSTRING = re.compile(r"^[ \t]*///(?!.*NOLINT).*\n|[ \t]*///<(?!.*NOLINT).*$", re.MULTILINE)
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
# Tests have only the checks of names, lengths and plain mistakes. Their speed does not matter, and they are half of all
# files.
_TEST_CHECKS = (
    "readability-identifier-naming,readability-function-size,google-explicit-constructor,bugprone-argument-comment,"
    "bugprone-dangling-handle,bugprone-suspicious-enum-usage,bugprone-suspicious-memset-usage,bugprone-unused-return-value"
)
# Examples of users' programs. Tests compile them with the installed library, so no preset has their compile commands.
_USERS_CODE = ("client-lib/example/", "client-lib/tests/")
_RECORD = "scripts/checks/lint_clean.txt"
_FORGET_SECONDS = 30 * 24 * 3600
_LINE = re.compile(r"^(/.*?):(\d+):\d+: (?:warning|error): (.*)$")


def _commands(tree):
    """Source path → compile command from build/lint, where every source is compiled alone and without precompiled headers.

    A source with a variant for the simulator is checked once."""
    database = tree.root / "build/lint/compile_commands.json"
    if not database.exists():
        raise RuntimeError("build/lint/compile_commands.json is missing: run cmake --preset lint first")
    ours = {str(tree.root / p): p for p in tree.cpp() if p.endswith(".cc")}
    commands = {}
    for entry in json.loads(database.read_text()):
        path = ours.get(entry["file"])
        if path and (path not in commands or "LOAM_ENV_SIM" in commands[path]["command"]):
            # The build already has the warnings of g++ as errors. The warnings of clang would demand another style.
            commands[path] = {**entry, "command": re.sub(r" -W(?!p,)\S+", "", entry["command"])}
    return commands


def _without_command(tree, commands):
    """Returns a finding for each source that clang-tidy cannot read because it has no compile command."""
    sources = [p for p in tree.cpp() if p.endswith(".cc") and not p.startswith(_USERS_CODE)]
    problem = "is compiled by no target of preset lint, so that clang-tidy does not read it: give it a target there"
    return [Finding(path, 0, problem) for path in sources if path not in commands]


def _linted(text):
    """Returns the part of a file's text that clang-tidy judges; None for a file that does not exist."""
    return None if text is None else _DOCSTRING.sub("", text)


class _Hasher:
    """Hashes a source file together with all headers of the tree that it reaches."""

    def __init__(self, tree, config):
        self._tree = tree
        self._config = config
        self._headers = {p for p in tree.paths if p.endswith(".h")}
        self._public = {p.split("/include/", 1)[1]: p for p in self._headers if "/include/" in p}
        # In the place of a generated header, the hash has the file from which the header is generated.
        for path in tree.paths:
            if path.endswith(".proto"):
                stem = path.split("/proto/", 1)[-1].removesuffix(".proto")
                self._headers.add(path)
                self._public.update({f"{stem}.pb.h": path, f"{stem}.grpc.pb.h": path})

    def reach(self, path):
        """Returns the source and all headers of the tree that it includes, directly or through others."""
        return self._reach(path, set())

    def _reach(self, path, seen):
        seen.add(path)
        folder = pathlib.PurePosixPath(path).parent
        for name in _INCLUDE.findall(self._tree.text(path) or ""):
            for header in (name, self._public.get(name), (folder / name).as_posix()):
                if header in self._headers and header not in seen:
                    self._reach(header, seen)
        return seen

    def of(self, path, entry):
        digest = hashlib.sha256(self._config + _TEST_CHECKS.encode())
        digest.update(entry["command"].replace(str(self._tree.root), ".").encode())  # the same in every clone
        for reached in sorted(self.reach(path)):
            digest.update(reached.encode() + b"\0" + (_linted(self._tree.text(reached)) or "").encode())
        return digest.hexdigest()


def _generate_sources(tree):
    """Builds the generated headers, such as those of protobuf. A lint needs nothing else of a build."""
    build = tree.root / "build/lint"
    if not (build / "build.ninja").exists():
        return
    targets = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], capture_output=True, text=True, check=True)
    generated = re.findall(r"^([^/]\S*\.h): CUSTOM_COMMAND$", targets.stdout, re.MULTILINE)
    if generated:
        subprocess.run(["ninja", "-C", build, *generated], check=True, stdout=subprocess.DEVNULL)


def _lint(tree, path, database):
    """Returns the findings in one source file and in the headers of the tree that it includes."""
    root = re.sub(r"([][.+*?(){}|^$\\])", r"\\\1", str(tree.root))  # for LLVM's POSIX regular expressions
    headers = f"^{root}/({'|'.join(CODE_ROOTS)})/.*\\.h$"
    command = ["clang-tidy-19", "--quiet", "-p", str(database), f"--header-filter={headers}"]
    if path.endswith("_test.cc") or path.startswith("tests/"):
        command.append(f"--checks=-*,{_TEST_CHECKS}")
    result = subprocess.run([*command, str(tree.root / path)], cwd=tree.root, capture_output=True, text=True)
    findings = set()
    for match in map(_LINE.match, result.stdout.splitlines()):
        if match:
            place = pathlib.Path(match.group(1))
            named = place.relative_to(tree.root).as_posix() if place.is_relative_to(tree.root) else str(place)
            findings.add(Finding(named, int(match.group(2)), match.group(3)))
    if result.returncode != 0 and not findings:
        raise RuntimeError(f"clang-tidy-19 failed on {path}: {result.stderr.strip() or result.stdout.strip()}")
    return findings


def _memory():
    """Returns the folder that records clean contents, after removing the old entries."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    memory = pathlib.Path(cache) / "loam" / "tidy"
    memory.mkdir(parents=True, exist_ok=True)
    for known in memory.iterdir():
        if time.time() - known.stat().st_mtime > _FORGET_SECONDS:
            known.unlink(missing_ok=True)
    return memory


def _version():
    result = subprocess.run(["clang-tidy-19", "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"LLVM version \S+", result).group()


def _suspects(tree, sources, hasher, version):
    """Returns the sources that may not be clean: those that a change since the recorded commit can affect, or all
    sources if there is no fitting record."""
    commit, _, recorded_version = (tree.text(_RECORD) or "").strip().partition(" ")
    changed = tree.changed_since(commit) if commit and recorded_version == version else None
    if changed is None or any(p.endswith(".clang-tidy") or p == "scripts/checks/tidy.py" for p in changed):
        return sources
    changed = {p for p in changed if _linted(tree.text(p)) != _linted(tree.git("show", f"{commit}:{p}"))}
    return [path for path in sources if not changed.isdisjoint(hasher.reach(path))]


def _lint_all(tree, todo, place, clean):
    """Returns the findings in the sources of `todo` (path → hash of its content). Lints several sources in parallel."""
    # The largest sources come first, so that no core is idle at the end while another lints a large source.
    order = sorted(todo, key=lambda path: -len(tree.text(path) or ""))
    findings, done, lock, began = set(), 0, threading.Lock(), time.monotonic()

    def lint(path):
        nonlocal done
        found = _lint(tree, path, place)
        if not found:
            (clean / todo[path]).touch()
        with lock:
            done += 1
            findings.update(found)
            if sys.stderr.isatty():
                seconds = time.monotonic() - began
                print(f"\r  tidy: {done} of {len(order)} files, {seconds:.0f} s ", end="", file=sys.stderr, flush=True)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lint, order))
    if order and sys.stderr.isatty():
        print(file=sys.stderr)
    return findings


def run(tree, whole=False):
    """Returns the findings in the sources that changed since the recorded commit or, if `whole`, in all sources."""
    _generate_sources(tree)
    commands = _commands(tree)
    clean = _memory()
    place = tree.root / "build/tidy"
    place.mkdir(parents=True, exist_ok=True)
    (place / "compile_commands.json").write_text(json.dumps(list(commands.values())))
    version = _version()
    configs = sorted(p for p in tree.paths if p.endswith(".clang-tidy"))
    hasher = _Hasher(tree, (version + "".join(p + (tree.text(p) or "") for p in configs)).encode())
    suspects = sorted(commands) if whole else _suspects(tree, sorted(commands), hasher, version)
    todo = {path: hasher.of(path, commands[path]) for path in suspects}
    for key in todo.values():
        if (clean / key).exists():
            (clean / key).touch()
    todo = {path: key for path, key in todo.items() if not (clean / key).exists()}
    print(f"  tidy: {len(suspects)} of {len(commands)} sources may have changed, {len(todo)} are not known to be clean", flush=True)
    return _without_command(tree, commands) + list(_lint_all(tree, todo, place, clean))


def record(tree):
    """Records the present commit as one at which the whole tree is clean. Returns a summary for people."""
    findings = run(tree, whole=True)
    if findings:
        for finding in sorted(findings):
            print(f"{finding} [tidy]")
        raise RuntimeError(f"{len(findings)} findings: the recorded commit stays")
    if tree.git("status", "--porcelain") != "":
        raise RuntimeError("the tree is clean, but has uncommitted changes: commit them, then run make lint again")
    commit = tree.git("rev-parse", "HEAD").strip()
    tree.write(_RECORD, f"{commit} {_version()}\n")
    return f"the whole tree is clean at {commit}: commit {_RECORD}"
