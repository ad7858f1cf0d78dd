"""Tests with resets, delays and late bytes on the connections between clients and servers: each request is executed
once, and sessions continue (R3, idempotent requests)."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import ClusterTest, main, poll  # noqa: E402
from proxied_cluster import ProxiedCluster  # noqa: E402
from proxy import NetworkFaultInjector  # noqa: E402

SEED = int(os.environ.get("LOAM_SEED", "1"))
CHANGES = "add:1=-5 add:2=5 add:3=-1 add:4=1 add:5=-2 add:6=2"


class NetworkTest(ClusterTest):
    """Every connection goes through a proxy."""

    def make_cluster(self):
        return ProxiedCluster(lease_s=2, node_lease_s=2)

    def test_transfers_survive_resets_and_late_bytes(self):
        movers = [self.cluster.transfers(f"mover-{i}", seconds=5, seed=SEED + i) for i in range(2)]
        print(f"  seed {SEED} (LOAM_SEED={SEED} repeats this run)", file=sys.stderr)
        disturber = NetworkFaultInjector(self.cluster.proxies(), SEED)
        codes = [mover.receive()["codes"] for mover in movers]
        disturber.stop()
        print(f"  {disturber.cuts} connections cut; {codes}", file=sys.stderr)
        self.assertGreater(disturber.cuts, 20)
        for of_one in codes:
            self.assertGreater(of_one.get("kOk", 0), 50, codes)
        self.check_history()

    def answer_lost(self, proxies, command, late_s):
        """Holds the reply to the command and resets its connection, so that the client sends the request again. Returns
        the reply to the command."""
        for proxy in proxies:
            proxy.hold(down=True)
        self.guide.send(command)
        poll(lambda: any(proxy.waiting("down") for proxy in proxies), "a reply is held")
        for proxy in proxies:
            proxy.cut(late_s=late_s)
            proxy.release()
        return self.guide.receive()

    def test_begin_that_is_repeated_is_executed_once(self):
        session = self.guide.call_ok("session")["session"]
        answer = self.answer_lost([self.cluster.to_manager], "begin 1", None)
        self.assertTrue(answer["ok"], answer)
        after = self.guide.call_ok("begin 1")
        self.assertEqual(after["first"], answer["first"] + 1, "one id was assigned")
        self.assertEqual(self.guide.call_ok("session")["session"], session, "the session continued")

    def test_writes_that_are_repeated_are_executed_once(self):
        session = self.guide.call_ok("session")["session"]
        for late_s in (None, 0.05):
            self.guide.call_ok(f"prepare {CHANGES}")
            answer = self.answer_lost(self.cluster.to_nodes, "commit", late_s)
            self.assertEqual(answer["outcome"], "committed", answer)
        self.assertEqual(self.guide.call_ok("session")["session"], session, "the session continued")
        self.check_history()

    def test_request_that_arrives_after_its_repetition_is_harmless(self):
        for _ in range(5):
            self.guide.call_ok(f"prepare {CHANGES}")
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
        self.guide.call_ok("prepare add:1=1 add:2=-1")
        self.cluster.to_manager.refuse()
        self.cluster.to_manager.cut()
        self.cluster.wait_until_fenced(self.guide)
        self.cluster.to_manager.refuse(False)
        self.assertEqual(self.guide.call("commit")["outcome"], "aborted")
        self.guide.call_ok("writable 20000 1 2")
        self.check_history()


if __name__ == "__main__":
    main()
