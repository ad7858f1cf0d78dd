"""A client that is killed between the steps of an index's split leaves a node that belongs to no tree: it is removed when
the client is fenced everywhere, and nothing else is (R31)."""

import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import DEADLINE_S, LOAM, Cluster, ClusterTest, main, poll  # noqa: E402

ROWS = 2_000


class SplitterKilledTest(ClusterTest):
    def make_cluster(self):
        return Cluster(manager_options=["--sweep-interval", "10ms"])

    def import_numbers(self, first, pause=None):
        """Its exit code. Rows of one import are entered in transactions of some hundreds."""
        path = os.path.join(self.cluster.folder, f"numbers-{first}.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("number,word\n")
            file.writelines(f"{number},word {number * 7919 % ROWS}\n" for number in range(first, first + ROWS))
        environment = dict(os.environ, **({"LOAM_PAUSE": pause} if pause else {}))
        return subprocess.run([LOAM, "import", "numbers", path, "--connect", self.cluster.address], env=environment,
                              capture_output=True, timeout=DEADLINE_S, check=False).returncode

    def recovery(self):
        return json.loads(self.cluster.loam("status", "--json"))["manager"]["recovery"]

    def count(self, *arguments):
        return len(self.cluster.loam("scan", "numbers", *arguments, "--csv").splitlines()) - 1

    def test_the_node_goes_and_nothing_else(self):
        self.assertEqual(self.import_numbers(0), 0)
        self.cluster.loam("index", "create", "by_word", "--table", "numbers", "--fields", "word")
        self.assertEqual(self.recovery().get("swept_nodes", 0), 0)
        for first in (ROWS, 2 * ROWS):
            before = self.recovery().get("swept_nodes", 0)
            killed = self.import_numbers(first, pause="client.tree.node_made=kill")
            self.assertEqual(killed, -signal.SIGKILL, "there was a split")
            # Others of its fibers may have made nodes, too.
            poll(lambda before=before: self.recovery().get("swept_nodes", 0) > before, "the node that was made is removed")
            self.assertEqual(self.count("--index", "by_word"), self.count())
        self.assertEqual(self.import_numbers(3 * ROWS), 0)
        self.assertEqual(self.count("--index", "by_word"), self.count())


if __name__ == "__main__":
    main()
