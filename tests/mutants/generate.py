#!/usr/bin/env python3
"""Copies the sources of the simulator into build/mutants/tree, with a switch at every place of every mutant.

The copy is a source tree of its own, built with its own presets (build/mutants/tree/build/dev). Compiler flags and
relative paths are therefore the same as in the product's build, and ccache finds the object of every file that no
mutant changes. A file that has not changed since the last run keeps its time stamp. If no mutant is selected, the
program behaves as the product's simulator.
"""

import argparse
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
import mutants as mutants_module  # noqa: E402
from mutants import MutantError  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = pathlib.Path(__file__).resolve().parent / "mutants.toml"
TREE = ROOT / "build/mutants/tree"

# The sources of the simulator. These are whole roots, because their CMakeLists.txt name the tests too.
PARTS = (
    "CMakeLists.txt",
    "CMakePresets.json",
    "cmake",
    "common",
    "storage-node",
    "commit-manager",
    "bdtree",
    "client-lib",
    "tests/CMakeLists.txt",
    "tests/sim",
)

# The preprocessor condition by which the simulator's sources detect that they are compiled in this copy. The copy has 1
# in its place, because ccache does not notice that the result of __has_include changes.
_ASKED = f'__has_include("{mutants_module.NAMES_HEADER}")'.encode()


def listed(root):
    """Returns the files of PARTS that exist in the working tree and that git tracks or does not ignore."""
    result = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PARTS],
        cwd=root,
        capture_output=True,
        check=True,
        text=True,
    )
    return sorted({name for name in result.stdout.split("\0") if name and (root / name).is_file()})


def write(path, content):
    """Writes the file if its content differs. Returns whether it did."""
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return True


def generate(root, tree, mutants):
    """Makes the copy. Returns the number of files that it wrote or removed."""
    files = listed(root)
    touched = {place.file for mutant in mutants for place in mutant.places}
    missing = touched - set(files)
    if missing:
        raise MutantError(f"no such file in {', '.join(PARTS)}: {', '.join(sorted(missing))}")
    contents = {}
    for name in files:
        content = (root / name).read_bytes()
        if name in touched:
            content = mutants_module.mutate(name, content.decode(), mutants).encode()
        contents[name] = content.replace(_ASKED, b"1")
    contents[mutants_module.HEADER] = mutants_module.header().encode()
    contents[mutants_module.NAMES_HEADER] = mutants_module.names_header(mutants).encode()
    changed = sum(write(tree / name, content) for name, content in contents.items())
    for part in {name.split("/")[0] for name in contents}:
        for path in (tree / part).rglob("*") if (tree / part).is_dir() else ():
            if path.is_file() and path.relative_to(tree).as_posix() not in contents:
                path.unlink()
                changed += 1
    return changed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="only print the mutants and their rules")
    parser.add_argument("--tree", type=pathlib.Path, default=TREE, help="folder of the copy (%(default)s)")
    arguments = parser.parse_args()
    try:
        mutants = mutants_module.load(LIST)
        if arguments.list:
            for mutant in mutants:
                print(f"{mutant.name:32} {mutant.rule:10} {mutant.what}")
            return 0
        changed = generate(ROOT, arguments.tree, mutants)
    except MutantError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 1
    places = sum(len(mutant.places) for mutant in mutants)
    print(f"{len(mutants)} mutants at {places} places in {arguments.tree}; {changed} files changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
