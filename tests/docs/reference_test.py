"""Tests that the reference of the public headers builds without warnings, and that each type that its first page names
has a page."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def build(folder, *settings):
    """Builds the reference into `folder`. Returns the exit code and the output of doxygen."""
    config = "\n".join([(ROOT / "docs/Doxyfile").read_text(), f"OUTPUT_DIRECTORY = {folder}", *settings])
    done = subprocess.run(["doxygen", "-"], cwd=ROOT, input=config, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


class ReferenceTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)

    def test_every_type_on_the_first_page_has_a_page(self):
        code, printed = build(self.folder)
        self.assertEqual((code, printed), (0, ""))
        named = re.findall(r"`(loam::[\w:]+)`", (ROOT / "docs/reference.md").read_text())
        self.assertGreater(len(named), 5)
        pages = {page.name for page in (self.folder / "html").glob("*.html")}
        for name in named:
            stem = name.replace("::", "_1_1")
            self.assertTrue({f"class{stem}.html", f"struct{stem}.html"} & pages, f"{name} has no page")

    def test_a_warning_is_an_error(self):
        header = self.folder / "wrong.h"
        header.write_text("/// Reads \\param gone of nothing.\nint read(int there);\n")
        code, printed = build(self.folder, f"INPUT = {header}", "USE_MDFILE_AS_MAINPAGE =")
        self.assertNotEqual(code, 0)
        self.assertIn("gone", printed)


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
