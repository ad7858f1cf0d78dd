"""Tests a short run of the retail suite. The suite checks its own results; the test checks that it reports the figures
for which there are targets."""

import json
import subprocess
import sys
import unittest

BENCH = sys.argv.pop(1)
OPTIONS = ("--quick", "--items", "3000", "--warm-up-s", "1", "--measured-s", "2", "--retail-clients", "2",
           "--retail-memory-mib", "256")


class Retail(unittest.TestCase):
    def figures(self, *options):
        run = subprocess.run([BENCH, "retail", *OPTIONS, *options], check=False, capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stderr[-2000:])
        figures = {}
        for line in run.stdout.splitlines():
            if line.startswith("{"):
                figure = json.loads(line)
                figures[figure["figure"]] = figure["value"]
        return figures

    def test_short_run_reports_the_figures(self):
        figures = self.figures()
        self.assertGreater(figures["retail.oltp_tps"], 0)
        self.assertGreaterEqual(figures["retail.p999_over_mean"], 1)
        self.assertIsNone(figures["retail.mixed_over_oltp"], "the mixed workload is not built yet")
        for step in ("category_lookup", "item_lookup", "customer_lookup", "new_order", "process_order"):
            self.assertGreaterEqual(figures[f"retail.{step}_max_us"], figures[f"retail.{step}_p999_us"])
            self.assertGreaterEqual(figures[f"retail.{step}_p999_us"], figures[f"retail.{step}_p50_us"])

    def test_no_shared_cache_and_no_combining_cost_round_trips(self):
        self.assertGreater(self.figures("--no-shared-cache", "--no-combining")["retail.trips_per_tx"],
                           self.figures()["retail.trips_per_tx"] + 0.5)


if __name__ == "__main__":
    unittest.main()
