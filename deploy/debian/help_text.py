"""Reads the --help output of a program (CLI11) and of all its subcommands. Makes manual pages and completions."""

import dataclasses
import re
import subprocess

_COLUMN = 30  # where CLI11 begins descriptions


@dataclasses.dataclass
class Entry:
    """An option, positional argument or subcommand."""

    form: str  # as --help shows it: "--limit N:0 to 9=5"
    text: str = ""  # the description

    @property
    def names(self):
        """The names of an option: ["-h", "--help"]. The negation of a switch is a name, too."""
        return [re.sub(r"\{\w+\}", "", name) for name in self.form.split(" ")[0].split(",")]

    @property
    def type(self):
        """The form of the value of an option, or empty if it takes none."""
        rest = re.sub(r" ?\((?:Env:[^)]*)\)| ?(?:Needs|Excludes):.*| ?\bREQUIRED\b", "", self.form)
        return rest.partition(" ")[2]

    @property
    def choices(self):
        """The values of an option or positional argument that lists them."""
        listed = re.search(r"\{([^}]*)\}", self.type)
        return listed[1].split(",") if listed else []

    @property
    def repeats(self):
        return "..." in self.type


@dataclasses.dataclass
class Help:
    """The help of a program or subcommand."""

    path: tuple  # of the subcommand: ("table", "create")
    intro: list = dataclasses.field(default_factory=list)
    usage: str = ""
    sections: dict = dataclasses.field(default_factory=dict)  # "Options" -> [Entry]
    footer: list = dataclasses.field(default_factory=list)
    subcommands: list = dataclasses.field(default_factory=list)  # [Help]

    def entries(self, section):
        return self.sections.get(section, [])

    def all(self):
        """This help and that of all subcommands below it."""
        yield self
        for subcommand in self.subcommands:
            yield from subcommand.all()


def _entry(line, following):
    """Splits a line of a section. `following` is the next line: its description, if the form is too long."""
    continues = following.startswith(" " * _COLUMN)
    split = len(line) > _COLUMN and line[_COLUMN - 1] == " " and (line[_COLUMN - 2] == " " or not continues)
    return Entry(line[:_COLUMN].strip(), line[_COLUMN:].strip()) if split else Entry(line.strip())


def parse(text, path):
    """Parses the output of --help."""
    result = Help(path)
    section = None
    lines = text.splitlines() + [""]
    for line, following in zip(lines, lines[1:]):
        heading = re.fullmatch(r"([A-Z]\w*):", line)
        if line.startswith("Usage: "):
            result.usage = line[len("Usage: "):]
        elif heading and result.usage:
            section = result.sections.setdefault(heading[1], [])
        elif section is not None and line.startswith(" " * _COLUMN):
            section[-1].text = f"{section[-1].text} {line.strip()}".strip()
        elif section is not None and line.startswith("  "):
            section.append(_entry(line, following))
        elif line:
            (result.footer if result.usage else result.intro).append(line)
    if not result.usage:
        raise ValueError(f"no usage in the help of {' '.join(path) or 'the program'}")
    return result


def read(program, path=()):
    """Runs `program SUBCOMMAND --help` for the program and all its subcommands."""
    command = [program, *path, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    result = parse(done.stdout, path)
    result.subcommands = [read(program, (*path, entry.form)) for entry in result.entries("Subcommands")]
    return result


def version(program):
    """The number that --version prints."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()[-1]
