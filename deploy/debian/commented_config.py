#!/usr/bin/env python3
"""Turns the output of --print-config into a configuration file that shows every option and sets only some of them."""

import argparse
import re
import sys
import textwrap

_OPTION = re.compile(r"([a-z][a-z0-9-]*) = ")
_COLUMNS = 120


def commented(printed, names):
    """Returns the lines of `printed` with a # before each option except `names`, and with wrapped descriptions.

    Raises ValueError if one of `names` is no option.
    """
    lines, found = [], set()
    for line in printed.splitlines():
        option = _OPTION.match(line)
        if line.startswith("# "):
            lines += ["", *textwrap.wrap(line[2:], _COLUMNS, initial_indent="# ", subsequent_indent="# ")]
        elif option and option[1] in names:
            found.add(option[1])
            lines.append(line)
        elif option:
            lines.append(f"#{line}")
        else:
            raise ValueError(f"neither a comment nor an option: {line!r}")
    if missing := sorted(set(names) - found):
        raise ValueError(f"there are no options {', '.join(missing)}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("head", type=argparse.FileType(), help="file with the first lines of the result")
    parser.add_argument("--set", default="", help="options that the result sets, separated by commas")
    arguments = parser.parse_args()
    sys.stdout.write(arguments.head.read() + commented(sys.stdin.read(), arguments.set.split(",")))


if __name__ == "__main__":
    main()
