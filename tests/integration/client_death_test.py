"""Clients that die, or sleep for longer than their lease, at each step of a commit and of an abort (R1, R2, R7, R8)."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import LEASE_S, Cluster, ClusterTest, main, now, poll  # noqa: E402
from proxied_cluster import ProxiedCluster  # noqa: E402

# In the order of R1 and R2; whether a transaction whose client dies there took place.
COMMIT_STEPS = {"begun": False, "writes_sent": False, "writes_applied": False, "indexed": False, "completed": True,
                "answered": True}
# Of an abort without index changes; index_death_test.py has the step behind their undo.
ABORT_STEPS = ("failed", "undo_decided", "reverts_sent", "reverted", "completed")
KEYS = (1, 2, 3, 4, 5, 6)  # on both nodes
CHANGES = "add:1=-5 add:2=5 add:3=-1 add:4=1 add:5=-2 add:6=2"
# How long a key may stay locked on an idle machine (issue), and what a loaded one gets on top.
ALLOWED_S = LEASE_S + 0.1
PATIENCE_S = 8


class StepsTest(ClusterTest):
    """A victim with a pause point at one step; a conflict makes it abort. The balances have an index (R27)."""

    def make_cluster(self):
        return Cluster(client_options=["--index"])

    def check_index(self):
        """Sums look at it, too."""
        self.assertTrue(self.guide.need("sum")["ok"])

    def reach(self, step, action, conflict):
        """The victim at its step, and when it got there. With `conflict` another client is faster."""
        victim = self.cluster.client(f"{step}.{action}", pause=f"client.{step}={action}")
        victim.id = victim.need(f"prepare {CHANGES}")["id"]
        if conflict:
            self.guide.need("transact add:4=-3 add:7=3")
        victim.send("commit")
        return victim, victim.wait_until_paused()

    def writable_after(self, since):
        answer = self.guide.need(f"writable 20000 {' '.join(map(str, KEYS))}")
        return answer["ended"] / 1e9 - since, answer

    def took_place(self, victim, answer):
        """Whether its writes are what the guide has found."""
        versions = [version for _, version, _ in answer["reads"]]
        self.assertIn(versions.count(victim.id), (0, len(KEYS)), f"half of {victim.id} in {answer}")
        return versions[0] == victim.id

    def check_step(self, step, action, conflict, committed):
        victim, since = self.reach(step, action, conflict)
        locked_s, answer = self.writable_after(since)
        print(f"  {step}: {action}: writable after {locked_s * 1000:.0f} ms", file=sys.stderr)
        self.assertLess(locked_s, ALLOWED_S + PATIENCE_S)
        self.assertEqual(self.took_place(victim, answer), committed)
        return victim


class ClientKilledTest(StepsTest):
    def test_at_each_step_of_a_commit(self):
        for step, committed in COMMIT_STEPS.items():
            with self.subTest(step=step):
                self.check_step(f"commit.{step}", "kill", False, committed)
                self.check_index()
        self.check_history()

    def test_at_each_step_of_an_abort(self):
        for step in ABORT_STEPS:
            with self.subTest(step=step):
                self.check_step(f"abort.{step}", "kill", True, False)
        self.check_history()

    def test_while_many_fibers_move_money(self):
        others = [self.cluster.transfers(f"other-{i}", seconds=5, seed=i) for i in range(2)]
        for i in range(4):
            victim = self.cluster.transfers(f"victim-{i}", seconds=60, seed=10 + i, fibers=16)
            victim.wait_for_attempts(50)
            victim.kill()
        for other in others:
            codes = other.receive()["codes"]
            self.assertGreater(codes.get("kOk", 0), 100, codes)
            self.assertEqual(other.wait(), 0)
        self.writable_after(0)
        self.check_history()


class FenceTest(StepsTest):
    """A storage node has acknowledged a fence only when no thread of it is inside a batch that began before (R7)."""

    def make_cluster(self):
        cluster = Cluster(nodes=1, node_options=["--network-threads", "2"])
        self.gate = os.path.join(cluster.folder, "gate")
        self.open_gate()
        cluster.node_pause = f"node.write.claimed=block:{self.gate}"
        return cluster

    def open_gate(self):
        with open(self.gate, "w", encoding="utf-8"):
            pass

    def test_write_that_is_under_way_is_waited_for_and_undone(self):
        victim = self.cluster.client("victim")
        victim.id = victim.need(f"prepare {CHANGES}")["id"]
        os.remove(self.gate)
        victim.send("commit")
        node, manager = self.cluster.nodes[0], self.cluster.manager
        node.wait_for_log("loam: paused at node.write.claimed")
        victim.kill()
        manager.wait_for_log(r"session \d+ \(victim\) ended")
        end = now() + 2 * LEASE_S
        poll(lambda: now() > end, "twice the lease")
        self.assertNotRegex(manager.log(), rf"session {victim.session} is fenced everywhere")
        self.open_gate()
        self.cluster.wait_until_fenced(victim)
        _, answer = self.writable_after(0)
        self.assertFalse(self.took_place(victim, answer))
        self.check_history()


class ClientStoppedTest(StepsTest):
    def check_told(self, victim, committed):
        """Fenced, the victim goes on, learns what became of its transaction, and works in a new session."""
        self.cluster.wait_until_fenced(victim)
        victim.resume()
        told = victim.receive()
        self.assertEqual(told["outcome"], "committed" if committed else "aborted", told)
        self.assertTrue(victim.need("transact add:1=-1 add:2=1")["ok"])
        return told

    def test_at_each_step_of_a_commit(self):
        for step, committed in COMMIT_STEPS.items():
            with self.subTest(step=step):
                victim = self.check_step(f"commit.{step}", "stop", False, committed)
                self.check_told(victim, committed)
                self.check_index()
        self.check_history()

    def test_at_each_step_of_an_abort(self):
        for step in ABORT_STEPS:
            with self.subTest(step=step):
                victim = self.check_step(f"abort.{step}", "stop", True, False)
                self.check_told(victim, False)
        self.check_history()


class ClientFencedTest(StepsTest):
    def make_cluster(self):
        return ProxiedCluster()

    def session_known(self, client):
        """By the commit manager: open, or ended and with something left to recover."""
        status = json.loads(self.cluster.loam("status", "--json"))
        return any(session["id"] == client.session for session in status["sessions"])

    def test_writes_that_come_after_the_recovery_are_refused(self):
        """Stopped before its writes, recovered, continued, and the commit manager's word that it is fenced has not come
        through yet: no recovery would undo its writes now, so the nodes must refuse them. An older snapshot is open, so
        that it is not refused as too old."""
        other = self.cluster.client("other", address=self.cluster.address)
        other.need("prepare read:8 add:9=0")
        victim = self.cluster.client("late", pause="client.commit.begun=stop;client.commit.writes_applied=kill")
        victim.id = victim.need(f"prepare {CHANGES}")["id"]
        victim.send("commit")
        victim.wait_until_paused()
        self.cluster.to_manager.hold(down=True)
        self.cluster.wait_until_fenced(victim)
        poll(lambda: not self.session_known(victim), "its transaction is recovered")
        victim.resume()
        end = now() + LEASE_S / 2
        poll(lambda: now() > end, "its writes reach the nodes")
        self.cluster.to_manager.release()
        told = victim.receive()
        self.assertEqual(told["outcome"], "aborted", told)
        self.assertEqual(told["code"], "kFenced", told)
        self.assertFalse(self.took_place(victim, other.need("transact " + " ".join(f"read:{key}" for key in KEYS))))
        self.check_history()

    def stopped_with_its_writes_in(self, name):
        victim = self.cluster.client(name, pause="client.commit.writes_applied=stop")
        victim.id = victim.need(f"prepare {CHANGES}")["id"]
        victim.send("commit")
        victim.wait_until_paused()
        return victim

    def seen_by(self, other, victim):
        return self.took_place(victim, other.need("transact " + " ".join(f"read:{key}" for key in KEYS)))

    def test_a_completion_that_comes_after_the_end_of_its_session_is_refused(self):
        """All its writes are in; its Complete is on the way until the session has ended (R8)."""
        other = self.cluster.client("other", address=self.cluster.address)
        victim = self.stopped_with_its_writes_in("held")
        self.cluster.to_manager.hold(up=True)
        victim.resume()
        self.cluster.wait_until_fenced(victim)
        self.cluster.to_manager.release()
        told = victim.receive()
        self.assertEqual(told["outcome"], "aborted", told)
        self.assertFalse(self.seen_by(other, victim))
        self.check_history()

    def test_a_lost_answer_to_a_completion_is_asked_for_under_the_next_session(self):
        """The commit manager has accepted the commit; its answer and the client's session are lost (R4)."""
        other = self.cluster.client("other", address=self.cluster.address)
        victim = self.stopped_with_its_writes_in("unanswered")
        self.cluster.to_manager.hold(down=True)
        victim.resume()
        poll(lambda: self.seen_by(other, victim), "others see the commit")
        victim.stop()
        self.cluster.wait_until_fenced(victim)
        self.cluster.to_manager.cut()
        self.cluster.to_manager.release()
        victim.resume()
        told = victim.receive()
        self.assertEqual(told["outcome"], "committed", told)
        self.check_history()

    def test_open_transaction_is_fenced_and_what_was_acknowledged_holds(self):
        victim = self.cluster.client("victim")
        session = victim.need("session")["session"]
        done = victim.need(f"transact {CHANGES}")
        victim.need("prepare add:1=-1 add:2=1")
        victim.stop()
        self.cluster.wait_until_fenced(victim)
        victim.resume()
        told = victim.ask("commit")
        self.assertEqual(told["code"], "kFenced", told)
        after = victim.need("transact read:1 read:2")
        self.assertEqual([version for _, version, _ in after["reads"]], [done["id"], done["id"]])
        victim.need("transact add:1=-1 add:2=1")
        self.assertGreater(victim.need("session")["session"], session)
        self.check_history()

    def test_while_many_fibers_move_money(self):
        mover = self.cluster.transfers("mover", seconds=6, fibers=16, seed=3)
        other = self.cluster.transfers("other", seconds=6, seed=4)
        for times in (1, 2):
            mover.wait_for_attempts(200)
            mover.stop()
            self.cluster.wait_until_fenced(mover, times)
            mover.resume()
        for client in (mover, other):
            codes = client.receive()["codes"]
            self.assertGreater(codes.get("kOk", 0), 100, codes)
            self.assertNotIn("kInternal", codes)
        self.check_history()


if __name__ == "__main__":
    main()
