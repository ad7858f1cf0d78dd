"""Tests plot_scan.py: the script that it gives to gnuplot, and its error for a file that lacks a figure."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).with_name("plot_scan.py")
STANDS_IN = '#!/bin/sh\n/bin/cat > "$FOLDER/script"\n'


def lines(leave_out=""):
    names = [f"fig51_{scan}_{share}_ms" for scan in ("log_clean", "log_half_garbage", "hash", "gets")
             for share in ("100", "50", "25", "12.5")]
    names += ["fig52_garbage_ms", "fig52_during_ms", "fig52_compacted_ms"]
    rows = [{"figure": "scan." + name, "value": 10.0 + i, "options": {"rows": 2_500_000}} for i, name in enumerate(names)]
    return "\n".join(json.dumps(row) for row in rows if row["figure"] != leave_out)


class PlotScan(unittest.TestCase):
    def plot(self, content):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "thesis.jsonl").write_text(content)
        stands_in = self.folder / "gnuplot"
        stands_in.write_text(STANDS_IN)
        stands_in.chmod(0o755)
        return subprocess.run([sys.executable, PROGRAM, self.folder / "thesis.jsonl", "out.svg"], capture_output=True,
                              text=True, check=False, env={"PATH": str(self.folder), "FOLDER": str(self.folder)})

    def test_draws_every_figure(self):
        done = self.plot(lines())
        self.assertEqual(done.returncode, 0, done.stderr)
        script = (self.folder / "script").read_text()
        self.assertIn('"100" 10.0 14.0 18.0 22.0\n', script)
        self.assertIn('"12.5" 13.0 17.0 21.0 25.0\n', script)
        self.assertIn('"during" 27.0\n', script)
        self.assertIn("2.5 M rows", script)

    def test_error_names_a_missing_figure(self):
        done = self.plot(lines(leave_out="scan.fig51_hash_25_ms"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("scan.fig51_hash_25_ms", done.stderr)


if __name__ == "__main__":
    unittest.main()
