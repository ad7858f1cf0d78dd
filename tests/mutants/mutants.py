"""The list of mutants (mutants.toml), and how one of them gets into a source file.

A place of a mutant is a statement or an expression of the product, written down word for word. It must stand exactly once
in its file (or once inside of the text `within`, which does): a place that has moved away is an error, not a mutant less.
"""

import dataclasses
import pathlib
import tomllib
import zlib

SWITCH = "::loam::mutants::active"
HEADER = "common/base/mutant_switch.h"  # what mutated files include
NAMES_HEADER = "common/base/mutants.h"  # what the simulator includes, if it is there


class MutantError(Exception):
    """The list is wrong, or does not fit the sources any more."""


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
    quick: bool = False  # dies within few seeds: the short test runs it
    seeds: int = 0  # how many it took when this was written
    needs: str = ""  # a judge that does not exist yet, without which it survives

    @property
    def number(self):
        """What the switch compares: from the name, so that a new mutant changes nothing but its own files."""
        return zlib.crc32(self.name.encode()) or 1


_TEXTS = {"name", "rule", "what", "needs"}
_FIELDS = _TEXTS | {"quick", "seeds", "place"}
_PLACE_FIELDS = {"file", "kind", "original", "mutated", "within"}


def _read_place(name, table):
    unknown = set(table) - _PLACE_FIELDS
    if unknown:
        raise MutantError(f"{name}: a place has no field {', '.join(sorted(unknown))}")
    missing = {"file", "kind", "original", "mutated"} - set(table)
    if missing:
        raise MutantError(f"{name}: a place lacks {', '.join(sorted(missing))}")
    if table["kind"] not in ("statement", "expression"):
        raise MutantError(f"{name}: kind is 'statement' or 'expression', not '{table['kind']}'")
    texts = {field: table.get(field, "").strip("\n") for field in ("original", "mutated", "within")}
    if not texts["original"].strip():
        raise MutantError(f"{name}: an empty original")
    if texts["original"].strip() == texts["mutated"].strip():
        raise MutantError(f"{name}: the mutated text is the original")
    return Place(file=table["file"], kind=table["kind"], **texts)


def parse(text):
    """The mutants of a list, in its order."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise MutantError(f"the list of mutants is no TOML: {error}") from error
    mutants = []
    for table in document.get("mutant", []):
        name = table.get("name", "(without a name)")
        unknown = set(table) - _FIELDS
        if unknown:
            raise MutantError(f"{name}: there is no field {', '.join(sorted(unknown))}")
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


def _find(mutant, place, text):
    """Where the original begins."""

    def once(needle, begin, end, where):
        count = text.count(needle, begin, end)
        if count != 1:
            raise MutantError(
                f"{mutant.name}: {place.file} has {count} times{where}:\n{needle}\n"
                "A place must be there exactly once; write it down again as it is now."
            )
        return text.index(needle, begin, end)

    if not place.within:
        return once(place.original, 0, len(text), "")
    begin = once(place.within, 0, len(text), "")
    return once(place.original, begin, begin + len(place.within), ", inside of `within`,")


def _switch(kind, original, variants):
    """The original, or what one of `variants`, (mutant, place), makes of it."""
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
    """The text of `file` with a switch at every place that a mutant has in it."""
    found = {}  # (begin, end) → (kind, [(mutant, place)])
    for mutant in mutants:
        for place in mutant.places:
            if place.file != file:
                continue
            begin = _find(mutant, place, text)
            span = (begin, begin + len(place.original))
            kind, variants = found.setdefault(span, (place.kind, []))
            if kind != place.kind:
                raise MutantError(f"{mutant.name}: another mutant calls the same place of {file} a {kind}")
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
        raise MutantError(f"{file}: has no #include before which the switch's header could stand")
    return text[:at] + f'#include "{HEADER}"\n' + text[at:]


def header():
    """Of the switch; the same for every list, so that a new mutant does not rebuild everything."""
    return """// Which mutant is switched on. Made by tests/mutants/generate.py; in no other tree.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace loam::mutants {

/// Number of the mutant that this process is; 0: none, the product.
inline uint32_t active = 0;

}  // namespace loam::mutants
"""


def names_header(mutants):
    """For the program's option --mutant."""
    rows = "\n".join(f'    {{"{mutant.name}", {mutant.number}u}},' for mutant in mutants)
    return f"""// The mutants by name. Made by tests/mutants/generate.py; in no other tree.
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

/// Makes this process the mutant of that name; false if there is none.
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
