#!/usr/bin/env python3
"""Prints a completion script for zsh or fish, made from --help: completion.py zsh|fish PROGRAM."""

import pathlib
import sys

import help_text


def short(text):
    """The first sentence of a description."""
    return text.split(". ")[0].split("; ")[0].split(": ")[0].rstrip(".")


def quoted(text):
    """Text in single quotes, for both shells without a quote or backslash inside."""
    return "'" + text.replace("\\", "").replace("'", "") + "'"


def zsh_value(entry):
    if entry.choices:
        return f"({' '.join(entry.choices)})"
    return "_files" if entry.names[-1] in ("--dir", "--flights") else " "


def zsh_text(text):
    """A description inside of a specification of _arguments."""
    for letter in "[]:'\\`":
        text = text.replace(letter, "")
    return text


def zsh(program, page):
    yield f"#compdef {program}"
    yield f"# Completion of {program} for zsh, made from its --help."
    for command in page.all():
        yield ""
        yield f"_{'_'.join((program, *command.path))}() {{"
        specifications = []
        for option in command.entries("Options"):
            for name in option.names:
                repeat = "*" if option.repeats else ""
                value = f":{zsh_text(option.type.split()[0].split(':')[0].split('=')[0])}:{zsh_value(option)}" if option.type else ""
                specifications.append(f"'{repeat}{name}[{zsh_text(short(option.text))}]{value}'")
        for number, argument in enumerate(command.entries("Positionals"), 1):
            place = "*" if argument.repeats else str(number)
            value = f"({' '.join(argument.choices)})" if argument.choices else "_files"
            specifications.append(f"'{place}:{zsh_text(argument.form.split()[0])}:{value}'")
        if not command.subcommands:
            yield "  _arguments \\\n    " + " \\\n    ".join(specifications)
        else:
            yield "  local state line"
            yield "  local -a commands"
            yield "  commands=("
            for subcommand in command.entries("Subcommands"):
                yield f"    {quoted(f'{subcommand.form}:{zsh_text(short(subcommand.text))}')}"
            yield "  )"
            specifications += ["'1: :->command'", "'*:: :->rest'"]
            yield "  _arguments -C \\\n    " + " \\\n    ".join(specifications)
            yield "  case $state in"
            yield "    command) _describe command commands ;;"
            yield "    rest)"
            yield "      case $words[1] in"
            for subcommand in command.subcommands:
                yield f"        {subcommand.path[-1]}) _{'_'.join((program, *subcommand.path))} ;;"
            yield "      esac ;;"
            yield "  esac"
        yield "}"
    yield ""
    yield f'_{program} "$@"'


def fish(program, page):
    paths = [" ".join(command.path) for command in page.all() if command.path]
    yield f"# Completion of {program} for fish, made from its --help."
    yield f"function __{program}_at --argument-names wanted --description 'Whether the command line is at this subcommand'"
    yield f"    set -l known {' '.join(quoted(path) for path in paths)}"
    yield "    set -l path"
    yield "    for word in (commandline -opc)[2..]"
    yield '        if contains -- (string trim -- "$path $word") $known'
    yield '            set path (string trim -- "$path $word")'
    yield "        end"
    yield "    end"
    yield '    test "$path" = "$wanted"'
    yield "end"
    for command in page.all():
        condition = f"complete -c {program} -n \"__{program}_at '{' '.join(command.path)}'\""
        if command.subcommands:
            yield f"{condition} -f"
        for subcommand in command.entries("Subcommands"):
            yield f"{condition} -a {subcommand.form} -d {quoted(short(subcommand.text))}"
        for argument in command.entries("Positionals"):
            if argument.choices:
                yield f"{condition} -f -a {quoted(' '.join(argument.choices))}"
        for option in command.entries("Options"):
            value = f" -x -a {quoted(' '.join(option.choices))}" if option.choices else " -r" if option.type else ""
            for name in option.names:
                kind = f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                yield f"{condition} {kind}{value} -d {quoted(short(option.text))}"


def main():
    shell, program = sys.argv[1], pathlib.Path(sys.argv[2])
    print("\n".join({"zsh": zsh, "fish": fish}[shell](program.name, help_text.read(program))))


if __name__ == "__main__":
    main()
