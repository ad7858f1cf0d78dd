"""Reads the list of mutants (mutants.toml), and puts mutants into source files.

A place of a mutant quotes a statement or an expression of the product word for word; only white space may differ. The
quoted text must occur exactly once in its file, or exactly once inside the text `within`, which must occur exactly once
in the file. A place that is not found is an error, so that no mutant disappears unnoticed.
"""

import dataclasses
import pathlib
import re
import tomllib
import zlib

SWITCH = "::loam::mutants::active"
HEADER = "common/base/mutant_switch.h"  # included by mutated files
NAMES_HEADER = "common/base/mutants.h"  # included by the simulator's main program, if it exists


class MutantError(Exception):
    """The list is invalid, or does not fit the sources."""


@dataclasses.dataclass(frozen=True)
class Place:
    file: str
    kind: str  # "statement" or "expression"
    original: str
    mutated: str
    within: str = ""


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    rule: str
    what: str
    places: tuple[Place, ...]
    quick: bool = False  # few seeds find it, so the short test runs it
    seeds: int = 0  # number of seeds that the last campaign needed
    needs: str = ""  # a missing check of the oracle, without which the mutant survives

    @property
    def number(self):
        """The value that the switch compares. It depends only on the name, so that a new mutant changes no other files."""
        return zlib.crc32(self.name.encode()) or 1


_TEXTS = {"name", "rule", "what", "needs"}
_FIELDS = _TEXTS | {"quick", "seeds", "place"}
_PLACE_FIELDS = {"file", "kind", "original", "mutated", "within"}


def _read_place(name, table):
    unknown = set(table) - _PLACE_FIELDS
    if unknown:
        raise MutantError(f"{name}: unknown field of a place: {', '.join(sorted(unknown))}")
    missing = {"file", "kind", "original", "mutated"} - set(table)
    if missing:
        raise MutantError(f"{name}: a place lacks the field {', '.join(sorted(missing))}")
    if table["kind"] not in ("statement", "expression"):
        raise MutantError(f"{name}: kind is 'statement' or 'expression', not '{table['kind']}'")
    texts = {field: table.get(field, "").strip("\n") for field in ("original", "mutated", "within")}
    if not texts["original"].strip():
        raise MutantError(f"{name}: the original is empty")
    if texts["original"].strip() == texts["mutated"].strip():
        raise MutantError(f"{name}: the mutated text equals the original")
    return Place(file=table["file"], kind=table["kind"], **texts)


def parse(text):
    """Returns the mutants of a list, in the order of the list."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MutantError(f"the list of mutants is not TOML: {error}") from error
    mutants = []
    for table in document.get("mutant", []):
        name = table.get("name", "(without a name)")
        unknown = set(table) - _FIELDS
        if unknown:
            raise MutantError(f"{name}: unknown field: {', '.join(sorted(unknown))}")
        for field in ("name", "rule", "what"):
            if not table.get(field):
                raise MutantError(f"{name}: needs a {field}")
        places = tuple(_read_place(name, place) for place in table.get("place", []))
        if not places:
            raise MutantError(f"{name}: has no place")
        mutants.append(
            Mutant(
                places=places,
                quick=table.get("quick", False),
                seeds=table.get("seeds", 0),
                **{field: table.get(field, "") for field in _TEXTS},
            )
        )
    for key in ("name", "number"):
        values = [getattr(mutant, key) for mutant in mutants]
        twice = {value for value in values if values.count(value) > 1}
        if twice:
            raise MutantError(f"two mutants have the {key} {', '.join(map(str, sorted(twice)))}")
    return mutants


def load(path):
    return parse(pathlib.Path(path).read_text())


def _pattern(excerpt):
    """Returns a pattern that matches an excerpt of a source even if the formatter breaks and aligns its lines otherwise."""
    tokens = re.findall(r"\w+|\S", excerpt)
    pattern = ""
    for before, token in zip(["", *tokens], tokens):
        words = before[-1:].isidentifier() or before[-1:].isdigit()
        pattern += (r"\s+" if words and re.match(r"\w", token) else r"\s*") if before else ""
        pattern += re.escape(token)
    return re.compile(pattern)


def _find(mutant, place, text):
    """Returns the (begin, end) of the original in the text."""

    def once(excerpt, begin, end, where):
        spans = [match.span() for match in _pattern(excerpt).finditer(text, begin, end)]
        if len(spans) != 1:
            raise MutantError(
                f"{mutant.name}: {place.file} contains the text {len(spans)} times{where}, not once:\n{excerpt}\n"
                "Copy the text again from the file as it is now."
            )
        return spans[0]

    begin, end = 0, len(text)
    if place.within:
        begin, end = once(place.within, begin, end, "")
    begin, end = once(place.original, begin, end, " inside `within`" if place.within else "")
    if "//" in text[:end].rpartition("\n")[2] and text[end:].partition("\n")[0].strip():
        raise MutantError(
            f"{mutant.name}: {place.file} continues the comment at the end of the text:\n{place.original}\n"
            "Copy the whole comment, or end the text before it."
        )
    return begin, end


def _switch(kind, original, variants):
    """Returns source text that chooses between the original and the `variants`, a list of (mutant, place)."""
    if kind == "expression":
        text = f"({original})"
        for mutant, place in reversed(variants):
            text = f"({SWITCH} == {mutant.number}u ? ({place.mutated}) : {text})"
        return text
    text = "{ "
    for mutant, place in variants:
        text += f"if ({SWITCH} == {mutant.number}u) {{ {place.mutated}\n}} else "
    return text + "{ " + original + "\n} }"


def mutate(file, text, mutants):
    """Returns the text of `file` with a switch at every place of every mutant."""
    found = {}  # (begin, end) → (kind, [(mutant, place)])
    for mutant in mutants:
        for place in mutant.places:
            if place.file != file:
                continue
            span = _find(mutant, place, text)
            kind, variants = found.setdefault(span, (place.kind, []))
            if kind != place.kind:
                raise MutantError(f"{mutant.name}: another mutant declares the same place of {file} as {kind}")
            variants.append((mutant, place))
    if not found:
        return text
    spans = sorted(found)
    for (_, end), (begin, _) in zip(spans, spans[1:]):
        if begin < end:
            names = [m.name for span in spans if span[0] < end <= span[1] or span[0] == begin for m, _ in found[span][1]]
            raise MutantError(f"{file}: places of {', '.join(names)} overlap")
    for begin, end in reversed(spans):
        kind, variants = found[begin, end]
        text = text[:begin] + _switch(kind, text[begin:end], variants) + text[end:]
    at = text.find("#include")
    if at < 0:
        raise MutantError(f"{file}: has no #include, before which the header of the switch can be included")
    return text[:at] + f'#include "{HEADER}"\n' + text[at:]


def header():
    """Returns the header of the switch. It does not depend on the list, so that a new mutant does not rebuild everything."""
    return """// The number of the selected mutant. tests/mutants/generate.py writes this file into its copy of the tree only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace loam::mutants {

/// Number of the mutant that this process executes; 0: none, so that it behaves as the product.
inline uint32_t active = 0;

}  // namespace loam::mutants
"""


def names_header(mutants):
    """Returns the header for the simulator's option --mutant."""
    rows = "\n".join(f'    {{"{mutant.name}", {mutant.number}u}},' for mutant in mutants)
    return f"""// The mutants by name. tests/mutants/generate.py writes this file into its copy of the tree only.
#pragma once

#include <array>
#include <string_view>

#include "{HEADER}"

namespace loam::mutants {{

struct Named {{
  std::string_view name;
  uint32_t number;
}};

inline constexpr std::array<Named, {len(mutants)}> kAll = {{{{
{rows}
}}}};

/// Selects the mutant of this name. Returns false if no mutant has this name.
inline bool select(std::string_view name) {{
  for (const Named& mutant : kAll) {{
    if (mutant.name != name) continue;
    active = mutant.number;
    return true;
  }}
  return false;
}}

}}  // namespace loam::mutants
"""
