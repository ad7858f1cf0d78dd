#!/usr/bin/env python3
"""Writes a header with the names of all probes and pause points of the product's sources.

usage: probe_names.py ROOT OUTPUT
"""

import pathlib
import re
import sys

ROOTS = ["common", "storage-node", "commit-manager", "client-lib", "bdtree"]
PROGRAMS = "common/program"  # the main programs, which the simulator does not contain
CALL = re.compile(r"(?:Env::probe|pause_point)\(([^;]*)\);")
NAME = re.compile(r"\"([a-z]+\.[a-z_.]+)\"")


def main() -> None:
    root, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    names = set()
    for folder in ROOTS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_relative_to(root / PROGRAMS):
                continue
            if path.suffix in (".h", ".cc") and not path.stem.endswith("_test"):
                for call in CALL.findall(path.read_text()):
                    names.update(NAME.findall(call))
    lines = ["#pragma once", "", "namespace loam::sim {", "inline constexpr const char* kProbeNames[] = {"]
    lines += [f'    "{name}",' for name in sorted(names)]
    lines += ["};", "}  // namespace loam::sim", ""]
    text = "\n".join(lines)
    if not output.exists() or output.read_text() != text:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text)


main()
