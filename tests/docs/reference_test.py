"""Tests that the reference of the public headers builds without warnings, that an undocumented item is a warning, and
that each type and namespace that its first page names has a page."""

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

    def test_every_name_on_the_first_page_has_a_page(self):
        code, printed = build(self.folder)
        self.assertEqual((code, printed), (0, ""))
        named = re.findall(r"`(loam[\w:]*)`", (ROOT / "docs/reference.md").read_text())
        self.assertGreater(len(named), 5)
        pages = {page.name for page in (self.folder / "html").glob("*.html")}
        for name in named:
            stem = name.replace("::", "_1_1")
            of_name = {f"{kind}{stem}.html" for kind in ("class", "struct", "namespace")}
            self.assertTrue(of_name & pages, f"{name} has no page")

    def test_a_warning_is_an_error(self):
        header = self.folder / "wrong.h"
        header.write_text("/// A file.\nstruct File {\n  /// Reads \\param gone of nothing.\n  int read(int there);\n};\n")
        code, printed = build(self.folder, f"INPUT = {header}", "USE_MDFILE_AS_MAINPAGE =")
        self.assertNotEqual(code, 0)
        self.assertIn("gone", printed)

    def test_an_undocumented_item_is_an_error(self):
        header = self.folder / "silent.h"
        header.write_text("/// Has two members.\nstruct Pair {\n  int first;  ///< the lower one\n  int second;\n};\n")
        code, printed = build(self.folder, f"INPUT = {header}", "USE_MDFILE_AS_MAINPAGE =")
        self.assertNotEqual(code, 0)
        self.assertIn("second", printed)
        self.assertNotIn("first", printed)

    def test_every_namespace_of_the_public_headers_has_a_page(self):
        """Doxygen leaves out an undocumented namespace without a warning, and with it the namespace's functions."""
        code, _ = build(self.folder)
        self.assertEqual(code, 0)
        inputs = re.search(r"^INPUT += ((?:.*\\\n)*.*)$", (ROOT / "docs/Doxyfile").read_text(), re.MULTILINE)[1]
        paths = [ROOT / path for path in inputs.replace("\\", " ").split()]
        headers = [header for path in paths for header in (path.glob("*.h") if path.is_dir() else [path])]
        text = "\n".join(header.read_text() for header in headers)
        opened = set(re.findall(r"^namespace (loam[\w:]*) {", text, re.MULTILINE))
        self.assertIn("loam::client", opened)
        for name in opened:
            page = self.folder / "html" / f"namespace{name.replace('::', '_1_1')}.html"
            self.assertTrue(page.exists(), f"{name} is not documented")

    def test_free_functions_error_codes_and_macros_have_entries(self):
        code, _ = build(self.folder, "INPUT = common/base/status.h", "USE_MDFILE_AS_MAINPAGE =")
        self.assertEqual(code, 0)
        self.assertIn("kConflict", (self.folder / "html/namespaceloam.html").read_text())
        self.assertIn("LOAM_RETURN_IF_ERROR", (self.folder / "html/status_8h.html").read_text())


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main()
