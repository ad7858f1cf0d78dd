"""Storage nodes that are stopped for longer than their lease and go on, and storage nodes that die (R9, R10)."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import ACCOUNTS, ClusterTest, main, poll  # noqa: E402


class StoppedTest(ClusterTest):
    def test_node_that_slept_beyond_its_lease_goes_on_with_its_records(self):
        mover = self.cluster.transfers("mover", seconds=6, seed=5)
        node = self.cluster.nodes[0]
        for _ in range(2):
            mover.wait_for_attempts(100)
            before = self.cluster.manager.log().count("is unreachable")
            node.stop()
            poll(lambda: self.cluster.manager.log().count("is unreachable") > before, "the node's lease runs out")
            node.resume()
            self.guide.need(f"writable 20000 {' '.join(map(str, range(1, ACCOUNTS + 1)))}")
        codes = mover.receive()["codes"]
        self.assertGreater(codes.get("kOk", 0), 100, codes)
        self.assertEqual(mover.wait(), 0)
        self.check_history()

    def test_client_dies_while_a_node_sleeps(self):
        """What it wrote elsewhere is undone meanwhile, the rest when the node is back (R9)."""
        victim = self.cluster.client("victim", pause="client.commit.writes_applied=stop")
        keys = range(1, ACCOUNTS + 1)
        victim.need("prepare " + " ".join(f"add:{key}={1 if key % 2 else -1}" for key in keys))
        victim.send("commit")
        victim.wait_until_paused()
        node = self.cluster.nodes[0]
        node.stop()
        victim.kill()
        self.cluster.wait_until_fenced(victim)
        node.resume()
        self.guide.need(f"writable 20000 {' '.join(map(str, keys))}")
        self.check_history()


if __name__ == "__main__":
    main()
