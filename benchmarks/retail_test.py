"""A short run of the retail suite: it checks its own answers, and gives the figures that the targets name."""

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

    def test_sessions_on_a_small_cluster(self):
        figures = self.figures()
        self.assertGreater(figures["retail.oltp_tps"], 0)
        self.assertGreaterEqual(figures["retail.p999_over_mean"], 1)
        self.assertIsNone(figures["retail.mixed_over_oltp"], "not built yet, and not invented")
        for step in ("category_lookup", "item_lookup", "customer_lookup", "new_order", "process_order"):
            self.assertGreaterEqual(figures[f"retail.{step}_max_us"], figures[f"retail.{step}_p999_us"])
            self.assertGreaterEqual(figures[f"retail.{step}_p999_us"], figures[f"retail.{step}_p50_us"])

    def test_the_predecessors_ways_cost_trips(self):
        self.assertGreater(self.figures("--no-shared-cache", "--no-combining")["retail.trips_per_tx"],
                           self.figures()["retail.trips_per_tx"] + 0.5)


if __name__ == "__main__":
    unittest.main()
