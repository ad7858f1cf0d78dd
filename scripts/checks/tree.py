"""The common part of all checks: the files of the tree, and findings."""

import dataclasses
import pathlib
import subprocess

CODE_ROOTS = ("common", "storage-node", "commit-manager", "bdtree", "client-lib", "deploy", "benchmarks", "tests")


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """One violation of a rule: its place (line 0: the whole file), the fault, and how to fix it."""

    path: str
    line: int
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message}" if self.line else f"{self.path}: {self.message}"


class Tree:
    """The files of the tree, with paths relative to the root: those that git tracks or does not ignore.

    Without a git repository, as in a source archive, these are all files outside of build/, .git/ and .cache/.
    """

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.paths = sorted(self._list())
        self._texts = {}

    def _list(self):
        # -z, because git quotes unusual names otherwise. is_file(), because git also lists files whose deletion is not
        # committed.
        if (self.root / ".git").exists():
            listed = self.git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
            if listed is not None:
                return {p for p in listed.split("\0") if p and (self.root / p).is_file()}
        return {
            p.relative_to(self.root).as_posix()
            for p in self.root.rglob("*")
            if p.is_file() and p.relative_to(self.root).parts[0] not in ("build", ".git", ".cache")
        }

    def text(self, path):
        """Returns the text of the file, or None if the file does not exist or is not UTF-8 text, such as sample
        data."""
        if path not in self._texts:
            try:
                text = (self.root / path).read_bytes().decode("utf-8")
                self._texts[path] = None if "\0" in text else text
            except (FileNotFoundError, UnicodeDecodeError):
                self._texts[path] = None
        return self._texts[path]

    def write(self, path, text):
        """Writes a file of the tree. Creates its folder if it does not exist."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def texts(self):
        """Yields (path, text) of every text file."""
        return ((path, self.text(path)) for path in self.paths if self.text(path) is not None)

    def cpp(self):
        """Returns the paths of the C++ files in the code roots."""
        return [p for p in self.paths if p.endswith((".h", ".cc")) and p.split("/")[0] in CODE_ROOTS]

    def git(self, *arguments):
        """Runs git at the root of the tree. Returns its output, or None if it fails, as without a repository."""
        result = subprocess.run(["git", "-C", str(self.root), *arguments], capture_output=True, text=True)
        return result.stdout if result.returncode == 0 else None

    def changed_since(self, commit):
        """Returns the paths that differ from a commit, whether the change is committed or not. None: the commit is not
        in the history of this tree."""
        if self.git("merge-base", "--is-ancestor", commit, "HEAD") is None:
            return None
        differ = self.git("diff", "--name-only", "--no-renames", "-z", commit)
        new = self.git("ls-files", "-z", "--others", "--exclude-standard")
        return None if differ is None or new is None else {p for p in (differ + new).split("\0") if p}

    def exists(self, path):
        """Returns whether a file or folder exists at `path`. This checks the disk, because a
        document may name a file that is not committed."""
        return (self.root / path).exists()
