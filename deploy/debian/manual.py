#!/usr/bin/env python3
"""Writes the manual page of a program from its --help: manual.py PROGRAM FOLDER. Subcommands are sections of the page."""

import datetime
import os
import pathlib
import sys

import help_text

# Program -> section of the manual, purpose for the line NAME, and the text of the section SEE ALSO.
PAGES = {
    "loam": (1, "the command line of a Loam storage cluster", "loam-commit-manager(8), loam-storage-node(8)"),
    "loam-bench": (1, "benchmarks of the Loam storage cluster", "loam(1)"),
    "loam-commit-manager": (8, "commit manager of a Loam storage cluster", "loam(1), loam-storage-node(8)"),
    "loam-storage-node": (8, "storage node of a Loam storage cluster", "loam(1), loam-commit-manager(8)"),
}
FILES = {
    "loam-commit-manager": [
        ("/etc/loam/commit-manager.toml", "the configuration that the unit loam-commit-manager.service reads"),
        ("/etc/loam/commit-manager.env", "LOAM_CONFIG and LOAM_OPTIONS for the unit; optional"),
        ("/var/lib/loam/commit-manager", "the state and the commit log"),
    ],
    "loam-storage-node": [
        ("/etc/loam/storage-node.toml", "a configuration to copy, with every option"),
        ("/etc/loam/storage-node-NAME.toml", "the configuration that the unit loam-storage-node@NAME.service reads"),
        ("/etc/loam/storage-node-NAME.env", "LOAM_CONFIG and LOAM_OPTIONS for that unit; optional"),
    ],
}


def escape(text):
    """Text as troff reads it: no letter is an escape, and a dash is the one of the command line."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("'", "\\(aq")
    return f"\\&{text}" if text.startswith(".") else text


def tagged(entries):
    for entry in entries:
        yield ".TP"
        yield f"\\fB{escape(entry.form)}\\fR"
        yield escape(entry.text) if entry.text else "\\&"


def sections(page, heading):
    """The options, positional arguments and subcommands of one help."""
    for title, entries in page.sections.items():
        if title != "Subcommands" and entries:
            yield f"{heading} {escape(title if heading == '.SS' else title.upper())}"
            yield from tagged(entries)


def manual(program, page, version, date):
    number, purpose, also = PAGES[program]
    yield f".\\\" Made from the output of {program} --help."
    yield f'.TH {program.upper()} {number} "{date:%Y-%m-%d}" "Loam {version}" "Loam"'
    yield ".SH NAME"
    yield f"{escape(program)} \\- {escape(purpose)}"
    yield ".SH SYNOPSIS"
    usage = page.usage if page.usage.startswith(program) else f"{program} {page.usage}"
    yield f"\\fB{escape(program)}\\fR {escape(usage[len(program):].strip())}"
    yield ".SH DESCRIPTION"
    yield from (escape(line) for line in page.intro)
    yield from sections(page, ".SH")
    if page.subcommands:
        yield ".SH COMMANDS"
        for command in list(page.all())[1:]:
            yield f".SS {escape(' '.join((program, *command.path)))}"
            yield from (escape(line) for line in command.intro)
            yield ".PP"
            usage = command.usage
            yield f"Usage: \\fB{escape(usage)}\\fR"
            for title, entries in command.sections.items():
                shown = [entry for entry in entries if entry.names[-1] != "--help"]
                if title != "Subcommands":
                    yield from tagged(shown)
            yield from ((".PP", *(escape(line) for line in command.footer)) if command.footer else ())
    if page.footer:
        yield ".SH NOTES"
        for line in page.footer:
            yield ".PP"
            yield escape(line)
    if program in FILES:
        yield ".SH FILES"
        yield from tagged(help_text.Entry(path, text) for path, text in FILES[program])
    yield ".SH SEE ALSO"
    yield escape(also)


def main():
    program, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    date = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    lines = manual(program.name, help_text.read(program), help_text.version(program), date)
    (folder / f"{program.name}.{PAGES[program.name][0]}").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
