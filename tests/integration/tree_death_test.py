"""Four processes write to the rightmost leaf of one Bd-tree, and some are killed. No acknowledged change is lost, no
other entry appears, and the tree is sound when the orphan nodes of the dead processes are swept (R27, index entries).

The fourth program of this test is loam-tree-writer (tree_writer.cc).
"""

import collections
import json
import os
import random
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import DEADLINE_S, WORKLOAD, Cluster, ClusterTest, Process, main, now, poll  # noqa: E402

WRITERS = 4
# Sixteen kills take four seconds on an idle machine. On a loaded machine, the test ends after ENOUGH_S with at least
# LEAST_KILLS.
MOST_KILLS, LEAST_KILLS, ENOUGH_S = 16, 4, 6
BUSY_BYTES = 2_000  # a writer has made progress when it has written this much output, which reports a dozen keys


class Writer(Process):
    """A writer whose output goes to a file of its own."""

    def __init__(self, name, cluster, seed):
        super().__init__(name, cluster.folder)
        self.output_path = os.path.join(cluster.folder, f"{name}.output")
        with open(self.output_path, "wb") as output:
            self.start([WORKLOAD, "--connect", cluster.address, "--name", name, "write", "--seed", seed],
                       stdin=subprocess.PIPE, stdout=output)

    def output_lines(self):
        """Returns the complete lines of its output, each split into the first word and the rest."""
        with open(self.output_path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        return [line.split(" ", 1) for line in lines[:-1]]

    def session(self):
        words = self.output_lines()
        return int(words[0][1]) if words else None

    def output_bytes(self):
        return os.path.getsize(self.output_path)

    def finish(self):
        self.process.stdin.close()
        return self.wait()


def expected(writers):
    """Evaluates the reports of all writers. Returns the keys that must be in the tree, the keys that may be in it, and
    unexpected reports."""
    must, may, wrong = set(), set(), []
    for writer in writers:
        for word, key in writer.output_lines():
            if word == "asks":
                may.add(key)
            elif word == "has":
                must.add(key)
            elif word == "refused":
                may.discard(key)
            elif word == "drops":
                must.discard(key)
            elif word == "dropped":
                may.discard(key)
            elif word == "kept":
                must.add(key)
            elif word != "session":
                wrong.append(f"{writer.name}: {word} {key}")
    return must, may, wrong


class TreeDeathTest(ClusterTest):
    def make_cluster(self):
        return Cluster()

    def setUp(self):
        self.cluster = self.make_cluster()
        self.cluster.start()
        seed = int(os.environ.get("LOAM_SEED", random.randrange(1 << 32)))
        print(f"LOAM_SEED={seed}", file=sys.stderr)
        self.random = random.Random(seed)
        self.writers = []

    def start_writer(self):
        writer = Writer(f"writer-{len(self.writers)}", self.cluster, self.random.randrange(1 << 30))
        self.writers.append(writer)
        self.cluster.clients[writer.name] = writer
        return writer

    def check_tree(self, ended):
        command = [WORKLOAD, "--connect", self.cluster.address, "--name", "checker", "check",
                   "--ended", ",".join(map(str, ended))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def wait_until_busy(self, living):
        enough = {writer: writer.output_bytes() + BUSY_BYTES for writer in living}
        poll(lambda: all(writer.output_bytes() > enough[writer] for writer in living), "all writers make progress")

    def kill_and_replace(self, living):
        """Kills one writer at a random moment, while all four write to the same leaf, and starts another one."""
        self.wait_until_busy(living)
        end = now() + self.random.uniform(0, 0.15)
        poll(lambda: now() > end, "a random moment")
        victim = living.pop(self.random.randrange(len(living)))
        self.assertTrue(victim.running(), f"{victim.name} ended by itself")
        victim.kill()
        living.append(self.start_writer())
        return victim

    def test_nothing_acknowledged_is_lost(self):
        living = [self.start_writer() for _ in range(WRITERS)]
        victims, enough = [], now() + ENOUGH_S
        while len(victims) < LEAST_KILLS or (len(victims) < MOST_KILLS and now() < enough):
            victims.append(self.kill_and_replace(living))
        self.wait_until_busy(living)
        for writer in living:
            self.assertEqual(writer.finish(), 0, writer.name)
        for victim in victims:
            self.cluster.wait_until_fenced(victim)  # afterwards none of its requests is in flight

        found = self.check_tree([writer.session() for writer in self.writers if writer.session()])
        must, may, wrong = expected(self.writers)
        keys = [key for key, _ in found["entries"]]
        self.assertEqual([entry for entry in found["entries"] if entry[1] != f"of {entry[0]}"], [])
        self.assertEqual([key for key, count in collections.Counter(keys).items() if count > 1], [])
        self.assertEqual(sorted(must - set(keys))[:10], [], "acknowledged, but missing")
        self.assertEqual(sorted(set(keys) - may)[:10], [], "never inserted, or removed")
        self.assertEqual(wrong, [])
        self.assertEqual(found["wrong"], "")
        self.assertEqual(found["again"], 0, "the first sweep left orphans")
        self.report(found, must)

    def report(self, found, must):
        counts = collections.Counter(word for writer in self.writers for word, _ in writer.output_lines())
        print(f"  {len(self.writers) - WRITERS} killed; {len(must)} keys must be there, {len(found['entries'])} are; "
              f"{found['orphans']} orphans; {dict(counts)}", file=sys.stderr)
        for writer in self.writers:
            for line in re.findall(r"^splits .*", writer.log(), re.MULTILINE):
                print(f"  {writer.name}: {line}", file=sys.stderr)


class ExpectedTest(unittest.TestCase):
    """Tests expected(): an insert or erase without a reply may have happened or not."""

    class StaticWriter:
        name = "one"

        def __init__(self, text):
            self.text = text

        def output_lines(self):
            return [line.split(" ", 1) for line in self.text.split("|")]

    def test_each_end_of_a_key(self):
        must, may, wrong = expected([self.StaticWriter(
            "session 1|asks a|has a|asks b|asks c|refused c|asks d|has d|drops d|asks e|has e|drops e|dropped e|"
            "asks f|has f|drops f|kept f"), self.StaticWriter("wrong g: kNotFound")])
        self.assertEqual((must, may), ({"a", "f"}, {"a", "b", "d", "f"}))
        self.assertEqual(wrong, ["one: wrong g: kNotFound"])


if __name__ == "__main__":
    main()
