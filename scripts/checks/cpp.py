"""The lexical rules of C++ that textual checks need."""

import functools
import re

_TOKEN = re.compile(
    r"""
    (?P<line>//[^\n]*)
  | (?P<block>/\*.*?\*/)
  | (?P<raw>R"(?P<tag>[^()\s\\]{0,16})\(.*?\)(?P=tag)")
  | (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<number>\b[0-9][0-9a-zA-Z.']*)
  | (?P<char>'(?:\\.|[^'\\\n])+')
    """,
    re.VERBOSE | re.DOTALL,
)


@functools.cache
def blank(text, strings=True):
    """Returns `text` with spaces in the place of comments and, if `strings`, of string literals. Offsets and lines do
    not change."""

    def spaces(match):
        if match.lastgroup == "number" or (not strings and match.lastgroup not in ("line", "block")):
            return match.group()
        return re.sub(r"[^\n]", " ", match.group())

    return _TOKEN.sub(spaces, text)


def line_of(text, offset):
    """Returns the line, counted from 1, of an offset."""
    return text.count("\n", 0, offset) + 1


def line_text(text, line):
    """Returns the text of a line, counted from 1."""
    return text.split("\n")[line - 1]


def arguments(text, opening):
    """Returns the text between the parenthesis at `opening` and the closing one."""
    depth = 0
    for i in range(opening, len(text)):
        if text[i] == "(":
            depth += 1
        elif text[i] == ")":
            depth -= 1
            if depth == 0:
                return text[opening + 1 : i]
    return text[opening + 1 :]
