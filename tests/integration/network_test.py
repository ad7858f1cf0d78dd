"""Connections that are reset, delayed, and whose tail arrives late, between clients and servers and between storage
nodes and the commit manager: answers are given once, sessions go on (R3)."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import ClusterTest, main, poll  # noqa: E402
from proxied_cluster import ProxiedCluster  # noqa: E402
from proxy import Disturber  # noqa: E402

SEED = int(os.environ.get("LOAM_SEED", "1"))
CHANGES = "add:1=-5 add:2=5 add:3=-1 add:4=1 add:5=-2 add:6=2"


class NetworkTest(ClusterTest):
    """Every connection goes through a proxy."""

    def make_cluster(self):
        return ProxiedCluster(lease_s=2, node_lease_s=2)

    def test_transfers_hold_through_resets_and_late_tails(self):
        movers = [self.cluster.transfers(f"mover-{i}", seconds=5, seed=SEED + i) for i in range(2)]
        print(f"  seed {SEED} (LOAM_SEED={SEED} repeats this run)", file=sys.stderr)
        disturber = Disturber(self.cluster.proxies(), SEED)
        codes = [mover.receive()["codes"] for mover in movers]
        disturber.stop()
        print(f"  {disturber.cuts} connections cut; {codes}", file=sys.stderr)
        self.assertGreater(disturber.cuts, 20)
        for of_one in codes:
            self.assertGreater(of_one.get("kOk", 0), 50, codes)
        self.check_history()

    def answer_lost(self, proxies, command, late_s):
        """The command's answer is held, and its connection reset: it is sent again, and executed once."""
        for proxy in proxies:
            proxy.hold(down=True)
        self.guide.send(command)
        poll(lambda: any(proxy.waiting("down") for proxy in proxies), "an answer is held")
        for proxy in proxies:
            proxy.cut(late_s=late_s)
            proxy.release()
        return self.guide.receive()

    def test_begin_that_is_repeated_is_executed_once(self):
        session = self.guide.need("session")["session"]
        answer = self.answer_lost([self.cluster.to_manager], "begin 1", None)
        self.assertTrue(answer["ok"], answer)
        after = self.guide.need("begin 1")
        self.assertEqual(after["first"], answer["first"] + 1, "one id was given once")
        self.assertEqual(self.guide.need("session")["session"], session, "the session went on")

    def test_writes_that_are_repeated_are_executed_once(self):
        session = self.guide.need("session")["session"]
        for late_s in (None, 0.05):
            self.guide.need(f"prepare {CHANGES}")
            answer = self.answer_lost(self.cluster.to_nodes, "commit", late_s)
            self.assertEqual(answer["outcome"], "committed", answer)
        self.assertEqual(self.guide.need("session")["session"], session, "the session went on")
        self.check_history()

    def test_request_that_arrives_only_after_its_repetition(self):
        for _ in range(5):
            self.guide.need(f"prepare {CHANGES}")
            for proxy in self.cluster.to_nodes:
                proxy.hold(up=True)
            self.guide.send("commit")
            poll(lambda: any(proxy.waiting("up") for proxy in self.cluster.to_nodes), "a request is held")
            for proxy in self.cluster.to_nodes:
                proxy.cut(late_s=0.05)
                proxy.release()
            answer = self.guide.receive()
            self.assertEqual(answer["outcome"], "committed", answer)
        self.check_history()

    def test_client_that_is_cut_off_for_longer_than_its_lease_is_fenced(self):
        self.guide.need("prepare add:1=1 add:2=-1")
        self.cluster.to_manager.refuse()
        self.cluster.to_manager.cut()
        self.cluster.wait_until_fenced(self.guide)
        self.cluster.to_manager.refuse(False)
        self.assertEqual(self.guide.ask("commit")["outcome"], "aborted")
        self.guide.need("writable 20000 1 2")
        self.check_history()


if __name__ == "__main__":
    main()
