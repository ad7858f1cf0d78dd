"""Runs the commands in the documents, so that the commands that a reader copies work.

Bash runs every fenced block marked `sh` from the root of the tree, with `set -euo pipefail`. A block fails if its exit
code is not 0. A block can also be marked as:

    ```sh no-run: needs a second machine      The block does not run, for the given reason.
    ```sh background: listening               The block runs in parallel with the later blocks of the document. These
                                              start when its output contains the text. The block is stopped at the end
                                              of the document.

The runner skips lines that would repeat the tests, create another Debian, or build programs that no document runs
(SKIPPED).
"""

import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

SKIPPED = ("make test", "make prove-setup", ".ci/run", "make build")
_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,})(?P<info>[^\n`]*)$")


class DocumentError(Exception):
    """A block that cannot be parsed, or a command that failed, with document, line and reason."""


@dataclasses.dataclass(frozen=True)
class Block:
    """A fenced block: its place, its commands, and its mode."""

    path: str
    line: int
    commands: str
    mode: str  # "run", "no-run" or "background"
    detail: str = ""  # the reason, or the text to wait for

    def place(self):
        return f"{self.path}:{self.line}"


def _mode(path, line, info):
    """Returns (mode, detail) of an info string such as "sh no-run: reason". None: the block has no shell commands."""
    language, _, rest = info.strip().partition(" ")
    if language in ("bash", "shell", "console", "zsh"):
        raise DocumentError(f"{path}:{line}: mark shell commands with ```sh, not ```{language}, so that they run")
    if language != "sh":
        return None
    rest = rest.strip()
    if not rest:
        return "run", ""
    mode, colon, detail = rest.partition(":")
    if mode not in ("no-run", "background") or not colon or not detail.strip():
        raise DocumentError(f"{path}:{line}: '{rest}' is neither 'no-run: REASON' nor 'background: TEXT'")
    return mode, detail.strip()


def blocks(path, text):
    """Returns the shell blocks of a Markdown document."""
    found, opening, body = [], None, []
    for number, line in enumerate(text.split("\n"), 1):
        fence = _FENCE.match(line)
        if opening is None:
            if fence:
                opening, body = (number, fence["fence"], fence["info"]), []
        elif fence and fence["fence"].startswith(opening[1]) and not fence["info"].strip():
            mode = _mode(path, opening[0], opening[2])
            if mode:
                commands = "".join(f"{c}\n" for c in body if c.strip() not in SKIPPED)
                found.append(Block(path, opening[0], commands, *mode))
            opening = None
        else:
            body.append(line)
    if opening is not None:
        raise DocumentError(f"{path}:{opening[0]}: the fenced block is never closed")
    return found


def _stop(process):
    """Ends the whole process group of a block by SIGTERM, and by SIGKILL if that does not suffice."""
    for signal_number, patience_s in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        try:
            os.killpg(process.pid, signal_number)
            process.wait(patience_s)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass
    if process.poll() is None:
        raise DocumentError(f"process group {process.pid} does not end")


class Runner:
    """Runs the blocks of documents in `root`. Used by one thread. `log` is called with each line of the report."""

    def __init__(self, root, timeout_s=1500, ready_s=30, log=print):
        self._root = pathlib.Path(root)
        self._timeout_s = timeout_s
        self._ready_s = ready_s
        self._log = log
        self._scratch = None

    def run(self, path):
        """Runs one document. Returns the number of blocks that ran. Raises DocumentError at the first block that
        fails."""
        document = blocks(str(path), (self._root / path).read_text(encoding="utf-8"))
        background, count = [], 0
        with tempfile.TemporaryDirectory(prefix="loam_docs_") as self._scratch:
            try:
                for block in document:
                    began = time.monotonic()
                    if block.mode == "no-run":
                        self._log(f"{block.place()}: not run: {block.detail}")
                        continue
                    if not block.commands.strip():
                        self._log(f"{block.place()}: nothing left to run")
                        continue
                    self._still_running(background)
                    if block.mode == "background":
                        background.append(self._start(block))
                    else:
                        self._run(block)
                    count += 1
                    self._log(f"{block.place()}: ok, {time.monotonic() - began:.1f} s")
                self._still_running(background)
            finally:
                for _, process, _ in background:
                    _stop(process)
        return count

    def _spawn(self, block, output):
        # The block gets a session of its own, so that all processes that it leaves behind are in its process group.
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", block.commands],
            cwd=self._root,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _fail(self, block, what, output):
        output_text = pathlib.Path(output).read_text(encoding="utf-8", errors="replace")
        raise DocumentError(f"{block.place()}: {what}\n{block.commands}--- output (its end):\n{output_text[-4000:]}")

    def _run(self, block):
        output = os.path.join(self._scratch, f"{block.line}.log")
        with open(output, "wb") as file:
            process = self._spawn(block, file)
        try:
            code = process.wait(self._timeout_s)
        except subprocess.TimeoutExpired:
            self._fail(block, f"did not end within {self._timeout_s} s", output)
        finally:
            _stop(process)
        if code != 0:
            self._fail(block, f"exit code {code}", output)

    def _start(self, block):
        output = os.path.join(self._scratch, f"{block.line}.log")
        with open(output, "wb") as file:
            process = self._spawn(block, file)
        deadline = time.monotonic() + self._ready_s
        while True:
            # The end is checked before the output is read, because the process may write its last output and end
            # between the two.
            ended = process.poll() is not None
            if block.detail in pathlib.Path(output).read_text(encoding="utf-8", errors="replace"):
                return block, process, output
            if ended or time.monotonic() > deadline:
                _stop(process)
                what = f"ended with code {process.poll()}" if ended else f"printed nothing for {self._ready_s} s"
                self._fail(block, f"{what} before it printed '{block.detail}'", output)
            time.sleep(0.02)  # poll interval

    def _still_running(self, background):
        for block, process, output in background:
            if process.poll() is not None:
                self._fail(block, f"ended too early, with code {process.poll()}", output)
