"""Runs the commands of README.md, HACKING.md and docs/*.md in this tree with the programs that are already built."""

import pathlib
import sys
import time

sys.dont_write_bytecode = True
from runner import DocumentError, Runner  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    documents = ["README.md", "HACKING.md", *sorted(p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/*.md"))]
    documents = sys.argv[1:] or documents
    failures, count, began = [], 0, time.monotonic()
    for document in documents:
        try:
            count += Runner(ROOT, log=lambda line: print(line, flush=True)).run(document)
        except (DocumentError, OSError) as error:
            print(error, flush=True)
            failures.append(document)
    print(f"{count} blocks of {len(documents)} documents ran in {time.monotonic() - began:.0f} s")
    if failures:
        print(f"failed: {', '.join(failures)}. Correct the document or the program; mark commands that cannot run 'no-run: REASON'.")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
