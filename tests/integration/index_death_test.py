"""A client that is killed during the split of an index node leaves an orphan node. The sweep removes it when the client
is fenced everywhere, and removes nothing else (R31, structure changes of the Bd-tree)."""

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
        """Imports ROWS rows, in transactions of some hundred rows. Returns the exit code."""
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

    def test_only_the_orphan_node_is_removed(self):
        self.assertEqual(self.import_numbers(0), 0)
        self.cluster.loam("index", "create", "by_word", "--table", "numbers", "--fields", "word")
        self.assertEqual(self.recovery().get("swept_nodes", 0), 0)
        for first in (ROWS, 2 * ROWS):
            before = self.recovery().get("swept_nodes", 0)
            killed = self.import_numbers(first, pause="client.tree.node_made=kill")
            self.assertEqual(killed, -signal.SIGKILL, "the client reached a split")
            # Other fibers of the client may have created nodes, too.
            poll(lambda before=before: self.recovery().get("swept_nodes", 0) > before, "the orphan node is removed")
            self.assertEqual(self.count("--index", "by_word"), self.count())
        self.assertEqual(self.import_numbers(3 * ROWS), 0)
        self.assertEqual(self.count("--index", "by_word"), self.count())


class AbortingClientKilledTest(ClusterTest):
    """A client dies during an abort, after the undo of its index changes. Recovery undoes the rest."""

    def put(self, key, number, pause=None):
        environment = dict(os.environ, **({"LOAM_PAUSE": pause} if pause else {}))
        return subprocess.run([LOAM, "put", "numbers", str(key), f"number={number}", f"word=w{key}", "--connect",
                               self.cluster.address], env=environment, capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False)

    def rows(self, *arguments):
        return self.cluster.loam("scan", "numbers", *arguments, "--csv").splitlines()[1:]

    def test_after_the_undo_of_its_index_changes(self):
        self.cluster.loam("table", "create", "numbers", "--field", "number:int64", "--field", "word:text")
        self.cluster.loam("index", "create", "by_word", "--table", "numbers", "--fields", "word")
        self.cluster.loam("index", "create", "one_number", "--table", "numbers", "--fields", "number", "--unique")
        self.assertEqual(self.put(1, 5).returncode, 0)
        killed = self.put(2, 5, pause="client.abort.index_undone=kill")
        self.assertEqual(killed.returncode, -signal.SIGKILL, killed.stderr)
        poll(lambda: self.put(2, 6).returncode == 0, "the key can be written again")
        for index in ("by_word", "one_number"):
            self.assertEqual(len(self.rows("--index", index)), 2)
        self.assertEqual(len(self.rows()), 2)


if __name__ == "__main__":
    main()
