"""What all checks share: the files of the tree, and the form of a finding."""

import dataclasses
import pathlib
import subprocess

CODE_ROOTS = ("common", "storage-node", "commit-manager", "bdtree", "client-lib", "deploy", "benchmarks", "tests")


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """One breach of a rule: where it is (line 0: the whole file), what is wrong, and what to do about it."""

    path: str
    line: int
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message}" if self.line else f"{self.path}: {self.message}"


class Tree:
    """The files that are, or are about to be, under version control, with paths relative to the root.

    Without a git repository (a source archive) these are all files outside build/ and .git/.
    """

    def __init__(self, root):
        self.root = pathlib.Path(root).resolve()
        self.paths = sorted(self._list())
        self._texts = {}

    def _list(self):
        # -z: git quotes unusual names otherwise. Files deleted but not yet committed are listed too, hence is_file().
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
        """The file's text, or None if there is no such file or it is not UTF-8 text: data samples are no prose."""
        if path not in self._texts:
            try:
                text = (self.root / path).read_bytes().decode("utf-8")
                self._texts[path] = None if "\0" in text else text
            except (FileNotFoundError, UnicodeDecodeError):
                self._texts[path] = None
        return self._texts[path]

    def write(self, path, text):
        """Writes a file of the tree, and its folder if there is none."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def texts(self):
        """(path, text) of every text file."""
        return ((path, self.text(path)) for path in self.paths if self.text(path) is not None)

    def cpp(self):
        """Our own C++ files."""
        return [p for p in self.paths if p.endswith((".h", ".cc")) and p.split("/")[0] in CODE_ROOTS]

    def git(self, *arguments):
        """What git prints when it is called at the root of the tree, or None if it fails: there may be no repository."""
        told = subprocess.run(["git", "-C", str(self.root), *arguments], capture_output=True, text=True)
        return told.stdout if told.returncode == 0 else None

    def changed_since(self, commit):
        """The paths that differ from a commit, committed or not; None if the commit is not in the history here."""
        if self.git("merge-base", "--is-ancestor", commit, "HEAD") is None:
            return None
        differ = self.git("diff", "--name-only", "--no-renames", "-z", commit)
        new = self.git("ls-files", "-z", "--others", "--exclude-standard")
        return None if differ is None or new is None else {p for p in (differ + new).split("\0") if p}

    def exists(self, path):
        """Whether a file or folder stands at `path`. Asks the disk: a document may name what is not committed yet."""
        return (self.root / path).exists()
