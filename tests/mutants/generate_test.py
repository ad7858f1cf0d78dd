"""Tests that the list of mutants fits the sources, and that an invalid list is refused with a clear message."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import generate  # noqa: E402
import mutants  # noqa: E402
from mutants import MutantError  # noqa: E402

SOURCE = """#include "x.h"

int twice(int x) {
  if (x < 0) return 0;
  return x + x;
}
"""


def listed(places, name="some"):
    """Returns the text of a list with one mutant."""
    text = f'[[mutant]]\nname = "{name}"\nrule = "R1"\nwhat = "a breach"\n'
    for place in places:
        text += "[[mutant.place]]\n" + "".join(f"{key} = '''{value}'''\n" for key, value in place.items())
    return text


def place(original, mutated, kind="expression", **more):
    return {"file": "common/x.cc", "kind": kind, "original": original, "mutated": mutated, **more}


class ListTest(unittest.TestCase):
    def test_list_fits_the_sources(self):
        found = mutants.load(generate.LIST)
        files = {p.file for mutant in found for p in mutant.places}
        for file in sorted(files):
            text = (generate.ROOT / file).read_text()
            self.assertNotEqual(mutants.mutate(file, text, found), text, file)
        self.assertGreaterEqual(len(found), 25)

    def test_product_does_not_mention_mutants(self):
        result = subprocess.run(
            ["git", "grep", "-l", "loam::mutants", "--", "common", "storage-node", "commit-manager", "client-lib"],
            cwd=generate.ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(result.stdout, "", "the product's sources mention mutants")

    def test_refuses_invalid_lists(self):
        for wrong, why in (
            ("[[mutant", "is not TOML"),
            (listed([]), "no place"),
            (listed([place("x", "y", kind="word")]), "'statement' or 'expression'"),
            (listed([place("x", "x")]), "equals the original"),
            (listed([place("", "x")]), "original is empty"),
            (listed([place("x", "y", colour="red")]), "unknown field of a place: colour"),
            (listed([place("x", "y")]) + listed([place("x", "z")]), "two mutants have the name"),
            (listed([place("x", "y")]).replace("rule", "ruler"), "unknown field: ruler"),
            (listed([place("x", "y")]).replace('"R1"', '""'), "needs a rule"),
        ):
            with self.assertRaisesRegex(MutantError, why):
                mutants.parse(wrong)


class MutateTest(unittest.TestCase):
    def mutate(self, *places):
        return mutants.mutate("common/x.cc", SOURCE, mutants.parse(listed(places)))

    def test_result_contains_original_and_mutated_text(self):
        text = self.mutate(place("x + x", "x * x"), place("if (x < 0) return 0;", "return 1;", kind="statement"))
        number = mutants.parse(listed([place("x", "y")]))[0].number
        self.assertIn(f"return (::loam::mutants::active == {number}u ? (x * x) : (x + x));", text)
        self.assertIn("{ return 1;\n}", text)
        self.assertIn("{ if (x < 0) return 0;\n}", text)
        self.assertTrue(text.startswith('#include "common/base/mutant_switch.h"\n#include "x.h"\n'))

    def test_original_must_occur_once(self):
        for original, count in (("x - x", 0), ("return", 2)):
            with self.assertRaisesRegex(MutantError, f"common/x.cc contains the text {count} times"):
                self.mutate(place(original, "y"))

    def test_line_breaks_may_differ(self):
        for original in ("x +\n      x", "x+x"):
            self.assertIn("return (::loam", self.mutate(place(original, "y")))
        self.assertIn("{ return 1;", self.mutate(place("if (x < 0)\n    return 0;", "return 1;", kind="statement")))
        with self.assertRaisesRegex(MutantError, "contains the text 0 times"):
            self.mutate(place("return0", "y"))

    def test_comment_must_not_be_cut(self):
        source = SOURCE.replace("return 0;", "return 0;  // nothing, as it should be")
        for original, refused in (("return 0;  // nothing", True), ("return 0;  // nothing, as it should be", False)):
            listing = mutants.parse(listed([place(original, "return 1;", kind="statement")]))
            if refused:
                with self.assertRaisesRegex(MutantError, "Copy the whole comment"):
                    mutants.mutate("common/x.cc", source, listing)
            else:
                self.assertIn("{ return 1;", mutants.mutate("common/x.cc", source, listing))

    def test_within_chooses_one_of_several(self):
        self.assertIn("(1) : (x)) < 0)", self.mutate(place("x", "1", within="(x < 0")))
        with self.assertRaisesRegex(MutantError, "2 times inside `within`"):
            self.mutate(place("x", "1", within="x + x"))

    def test_mutants_may_share_a_place_but_not_overlap(self):
        both = mutants.parse(listed([place("x + x", "1")], "a") + listed([place("x + x", "2")], "b"))
        text = mutants.mutate("common/x.cc", SOURCE, both)
        self.assertEqual(text.count("::loam::mutants::active"), 2)
        self.assertEqual(text.count("(x + x)"), 1)
        overlapping = mutants.parse(listed([place("x + x", "1")], "a") + listed([place("return x + x", "2")], "b"))
        with self.assertRaisesRegex(MutantError, "overlap"):
            mutants.mutate("common/x.cc", SOURCE, overlapping)


class GenerateTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name) / "root"
        self.tree = pathlib.Path(holder.name) / "tree"
        for name, text in (("common/x.cc", SOURCE), ("common/y.cc", "int y;\n"), ("other/z.cc", "int z;\n")):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        subprocess.run(["git", "init", "-q"], cwd=self.root, check=True)

    def test_copies_the_parts_and_touches_only_what_changed(self):
        one = mutants.parse(listed([place("x + x", "x * x")]))
        self.assertGreater(generate.generate(self.root, self.tree, one), 0)
        self.assertIn("x * x", (self.tree / "common/x.cc").read_text())
        self.assertEqual((self.tree / "common/y.cc").read_text(), "int y;\n")
        self.assertFalse((self.tree / "other").exists())
        for path in self.tree.rglob("*.*"):
            os.utime(path, (1, 1))
        self.assertEqual(generate.generate(self.root, self.tree, one), 0)
        self.assertEqual((self.tree / "common/x.cc").stat().st_mtime, 1)
        other = mutants.parse(listed([place("x + x", "x - x")]))
        self.assertEqual(generate.generate(self.root, self.tree, other), 1)
        self.assertNotEqual((self.tree / "common/x.cc").stat().st_mtime, 1)
        self.assertEqual((self.tree / "common/y.cc").stat().st_mtime, 1)

    def test_removes_deleted_files(self):
        one = mutants.parse(listed([place("x + x", "x * x")]))
        generate.generate(self.root, self.tree, one)
        (self.root / "common/y.cc").unlink()
        self.assertEqual(generate.generate(self.root, self.tree, one), 1)
        self.assertFalse((self.tree / "common/y.cc").exists())

    def test_refuses_a_deleted_file(self):
        (self.root / "common/x.cc").unlink()
        with self.assertRaisesRegex(MutantError, "no such file .*common/x.cc"):
            generate.generate(self.root, self.tree, mutants.parse(listed([place("x + x", "x * x")])))


if __name__ == "__main__":
    unittest.main(verbosity=2)
