"""Tests storage nodes that are stopped for longer than their lease and continue (R9, leases of storage nodes), and
storage nodes that die (R10, incarnations)."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import ACCOUNTS, BALANCE, DEADLINE_S, LOAM, ClusterTest, main, poll  # noqa: E402


class NodeStoppedTest(ClusterTest):
    def test_node_stopped_beyond_its_lease_keeps_its_records(self):
        mover = self.cluster.transfers("mover", seconds=6, seed=5)
        node = self.cluster.nodes[0]
        for _ in range(2):
            mover.wait_for_attempts(100)
            before = self.cluster.manager.log().count("is unreachable")
            node.stop()
            poll(lambda: self.cluster.manager.log().count("is unreachable") > before, "the node's lease runs out")
            node.resume()
            self.guide.call_ok(f"writable 20000 {' '.join(map(str, range(1, ACCOUNTS + 1)))}")
        codes = mover.receive()["codes"]
        self.assertGreater(codes.get("kOk", 0), 100, codes)
        self.assertEqual(mover.wait(), 0)
        self.check_history()

    def status(self):
        """Returns the output of `loam status`. Its exit code is not 0 while a node is unreachable."""
        return subprocess.run([LOAM, "status", "--connect", self.cluster.address], capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False).stdout

    def test_client_dies_while_a_node_is_stopped(self):
        """The recovery undoes the client's writes on the other nodes at once, and on the stopped node when it
        continues."""
        victim = self.cluster.client("victim", pause="client.commit.writes_applied=stop")
        keys = range(1, ACCOUNTS + 1)
        victim.id = victim.call_ok("prepare " + " ".join(f"add:{key}={1 if key % 2 else -1}" for key in keys))["id"]
        victim.send("commit")
        victim.wait_until_paused()
        node = self.cluster.nodes[0]
        node.stop()
        victim.kill()
        self.cluster.wait_until_fenced(victim)
        self.assertIn(f"session {victim.session} is being recovered: transactions {victim.id}", self.status())
        node.resume()
        self.guide.call_ok(f"writable 20000 {' '.join(map(str, keys))}")
        self.check_history()


class NodeKilledTest(ClusterTest):
    """One of two storage nodes dies, so that its records are lost."""

    def setUp(self):
        super().setUp()
        self.lost_node, self.live_node = self.cluster.nodes
        self.cluster.client("writer").call_ok("transact " + " ".join(f"add:{key}=1" for key in range(1, ACCOUNTS + 1)))

    def read(self, key):
        return self.guide.call(f"transact read:{key}")

    def sooner_or_later(self, command):
        """Repeats the command until it succeeds. A client may learn of an accepted loss or a recovery with a delay."""
        return poll(lambda: (answer := self.guide.call(command))["ok"] and answer, command)

    def lose(self):
        """Kills the node. Returns its keys and the keys of the other node."""
        self.lost_node.kill()
        self.cluster.start_node(self.lost_node)
        answers = {key: self.read(key) for key in range(1, ACCOUNTS + 1)}
        lost = [key for key, answer in answers.items() if not answer["ok"]]
        self.assertEqual({answers[key]["code"] for key in lost}, {"kUnavailable"})
        live = [key for key in answers if key not in lost]
        self.assertGreater(len(lost), 0)
        self.assertGreater(len(live), 0)
        self.assertEqual({balance for key in live for _, _, balance in answers[key]["reads"]}, {BALANCE + 1})
        return lost, live

    def accept(self):
        lost_address = self.cluster.addresses[self.lost_node.name]
        nodes = [json.loads(line) for line in self.cluster.loam("node", "list", "--json").splitlines()]
        number = next(node["node"] for node in nodes if node["address"] == lost_address)
        self.cluster.loam("node", "accept-loss", number, "--yes")

    def test_its_keys_are_unavailable_until_the_loss_is_accepted_and_then_gone(self):
        lost, live = self.lose()
        # Transactions on the other node continue. A transaction that needs both nodes fails with a clear error and
        # leaves nothing.
        for _ in range(3):
            self.guide.call_ok(f"transact add:{live[0]}=-5 add:{live[1]}=5")
            self.guide.call_ok(f"transact add:{live[0]}=5 add:{live[1]}=-5")
        both = self.guide.call(f"transact add:{live[0]}=-5 add:{lost[0]}=5")
        self.assertEqual((both["outcome"], both["code"]), ("aborted", "kUnavailable"), both)

        self.accept()
        self.sooner_or_later(f"transact read:{lost[0]}")
        for key in lost:
            self.assertEqual(self.read(key)["reads"], [[key, 0, 0]])
            self.guide.call_ok(f"transact insert:{key}={BALANCE + 1}")
        keys = range(1, ACCOUNTS + 1)
        self.guide.call_ok("transact " + " ".join(f"add:{key}={1 if key % 2 else -1}" for key in keys))
        self.assertEqual(self.guide.call_ok("sum")["sum"], ACCOUNTS * (BALANCE + 1))

    def test_transactions_that_were_open_on_it_end(self):
        """A client has locked records of both nodes when one node dies. When the loss is accepted, no record is
        locked."""
        keys = range(1, ACCOUNTS + 1)
        changes = "prepare " + " ".join(f"add:{key}=0" for key in keys)
        victim = self.cluster.client("victim", pause="client.commit.writes_applied=stop")
        victim.call_ok(changes)
        victim.send("commit")
        victim.wait_until_paused()
        lost, live = self.lose_while_locked(victim)
        self.accept()
        self.sooner_or_later(f"transact read:{lost[0]}")
        self.guide.call_ok(f"writable 20000 {' '.join(map(str, live))}")
        victim.resume()
        self.assertNotEqual(victim.receive()["outcome"], "committed")
        victim.call_ok(f"transact add:{live[0]}=-5 add:{live[1]}=5")

    def test_transactions_that_began_before_the_loss_was_accepted_cannot_commit(self):
        """Such a transaction may have read or written lost records (R9, leases of storage nodes). Its client undoes its
        writes."""
        older = self.cluster.client("older")
        lost, live = self.lose()
        older.call_ok(f"prepare add:{live[0]}=-5 add:{live[1]}=5")
        self.accept()
        reply = older.call("commit")
        self.assertEqual(reply["outcome"], "aborted", reply)
        self.sooner_or_later(f"transact read:{lost[0]}")
        answer = self.guide.call_ok(f"writable 20000 {live[0]} {live[1]}")
        self.assertEqual([balance for _, _, balance in answer["reads"]], [BALANCE + 1] * 2)
        self.sooner_or_later(f"transact add:{live[0]}=-5 add:{live[1]}=5")

    def lose_while_locked(self, victim):
        found = self.lose()
        self.cluster.wait_until_fenced(victim)
        return found

    def test_manager_restarts_while_a_node_is_gone(self):
        """The manager answers begins only when the loss is accepted, because the node's intents are lost with its
        records."""
        self.lost_node.kill()
        self.cluster.manager.kill()
        self.cluster.start_manager()
        poll(lambda: self.guide.call("begin 1")["code"] == "kUnavailable", "begins are refused")
        self.cluster.start_node(self.lost_node)
        poll(self.accepted, "the loss is accepted")
        answer = self.sooner_or_later("transact read:1")
        self.guide.call_ok("writable 20000 1" if answer["reads"][0][1] else "transact insert:1=5")

    def accepted(self):
        try:
            self.accept()
            return True
        except AssertionError:
            return False


if __name__ == "__main__":
    main()
