"""Tests plot_gc.py without gnuplot, with a gnuplot that fails, and with a script that records the input of gnuplot."""

import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).with_name("plot_gc.py")
WINDOWS = """variant,turn,clock,seconds,puts_per_s,memory_over_live
with,1,wall,0.1,9000000,1.6
with,2,wall,0.1,2500000,1.6
with,2,cpu,0.1,8000000,1.6
with,2,wall,0.2,1500000,1.6
without,2,wall,0.1,3000000,1.6
"""
# Stands in for gnuplot. Copies the script and the data files that it names, because plot_gc.py removes them at its end.
STANDS_IN = """#!/bin/sh
/bin/cat > "$FOLDER/script"
/bin/cp $(/bin/sed -n 's/^plot "\\([^"]*\\)".*/\\1/p; s/^ *"\\([^"]*\\)" using.*/\\1/p' "$FOLDER/script") "$FOLDER"
exit {code}
"""


class PlotGc(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def plot(self, windows=WINDOWS, gnuplot=None):
        (self.folder / "windows.csv").write_text(windows)
        if gnuplot is not None:
            stands_in = self.folder / "gnuplot"
            stands_in.write_text(gnuplot)
            stands_in.chmod(0o755)
        # The PATH has only the folder, so that an installed gnuplot is not found.
        environment = dict(os.environ, PATH=str(self.folder), FOLDER=str(self.folder))
        return subprocess.run([sys.executable, PROGRAM, self.folder / "windows.csv", "out.svg"],
                              capture_output=True, text=True, env=environment, check=False)

    def test_missing_gnuplot_error_names_the_package(self):
        ended = self.plot()
        self.assertEqual(ended.returncode, 1)
        self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)
        self.assertIn("apt-get install gnuplot-nox", ended.stderr)

    def test_failing_gnuplot_gives_a_one_line_error(self):
        ended = self.plot(gnuplot=STANDS_IN.format(code=3))
        self.assertEqual(ended.returncode, 1)
        self.assertIn("exit code 3", ended.stderr)
        self.assertNotIn("Traceback", ended.stderr)

    def test_draws_the_last_turn_by_the_wall_clock(self):
        ended = self.plot(gnuplot=STANDS_IN.format(code=0))
        self.assertEqual(ended.returncode, 0, ended.stderr)
        script = (self.folder / "script").read_text()
        self.assertIn('set output "out.svg"', script)
        self.assertIn("with collection, 1.6 times the memory", script)
        self.assertEqual((self.folder / "with").read_text(), "0.1 2.5\n0.2 1.5\n")
        self.assertEqual((self.folder / "without").read_text(), "0.1 3.0\n")

    def test_refuses_a_file_without_memory_over_live(self):
        ended = self.plot(windows=WINDOWS.replace("memory_over_live", "other"), gnuplot=STANDS_IN.format(code=0))
        self.assertEqual(ended.returncode, 1)
        self.assertIn("memory_over_live", ended.stderr)
        self.assertNotIn("Traceback", ended.stderr)

    def test_error_names_a_missing_variant(self):
        ended = self.plot(windows=WINDOWS.replace("without,", "other,"), gnuplot=STANDS_IN.format(code=0))
        self.assertEqual(ended.returncode, 1)
        self.assertIn("'without'", ended.stderr)


if __name__ == "__main__":
    unittest.main()
