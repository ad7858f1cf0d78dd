"""Clients that die, or stop for longer than their lease, at each step of a commit and of an abort (R1, R2, R7, R8)."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import LEASE_S, Cluster, ClusterTest, main, now, poll  # noqa: E402
from proxied_cluster import ProxiedCluster  # noqa: E402

# The steps of a commit, in the order of R1 (commit order). True: the transaction commits if its client dies at this
# step.
COMMIT_STEPS = {"begun": False, "writes_sent": False, "writes_applied": False, "indexed": False, "completed": True,
                "answered": True}
# The steps of an abort without index changes, in the order of R2 (abort order). index_death_test.py tests the step
# after the undo of index changes.
ABORT_STEPS = ("failed", "undo_decided", "reverts_sent", "reverted", "completed")
KEYS = (1, 2, 3, 4, 5, 6)  # on both nodes
CHANGES = "add:1=-5 add:2=5 add:3=-1 add:4=1 add:5=-2 add:6=2"
# Longest time for which a key may stay locked on an idle machine, and the additional time for a loaded machine.
ALLOWED_S = LEASE_S + 0.1
PATIENCE_S = 8


class StepsTest(ClusterTest):
    """Tests with a victim: a client that stops or dies at one step of a commit or, after a conflict, of an abort. The
    balances have an index (R27, index entries)."""

    def make_cluster(self):
        return Cluster(client_options=["--index"])

    def check_index(self):
        """Compares the index with the records: the command `sum` does this."""
        self.assertTrue(self.guide.call_ok("sum")["ok"])

    def reach(self, step, action, conflict):
        """Starts a victim and waits until it reaches its step. Returns the victim and the time. `conflict`: another
        client commits first, so that the victim aborts."""
        victim = self.cluster.client(f"{step}.{action}", pause=f"client.{step}={action}")
        victim.id = victim.call_ok(f"prepare {CHANGES}")["id"]
        if conflict:
            self.guide.call_ok("transact add:4=-3 add:7=3")
        victim.send("commit")
        return victim, victim.wait_until_paused()

    def writable_after(self, since):
        answer = self.guide.call_ok(f"writable 20000 {' '.join(map(str, KEYS))}")
        return answer["ended"] / 1e9 - since, answer

    def took_place(self, victim, answer):
        """Returns whether `answer` shows the victim's writes. It must show all of them or none."""
        versions = [version for _, version, _ in answer["reads"]]
        self.assertIn(versions.count(victim.id), (0, len(KEYS)), f"only some writes of {victim.id} in {answer}")
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
    """A storage node acknowledges a fence only when none of its threads executes a batch that began before the fence
    (R7, fence barrier)."""

    def make_cluster(self):
        cluster = Cluster(nodes=1, node_options=["--network-threads", "2"])
        self.block_file = os.path.join(cluster.folder, "block")
        self.resume_writer()
        cluster.node_pause = f"node.write.claimed=block:{self.block_file}"
        return cluster

    def resume_writer(self):
        with open(self.block_file, "w", encoding="utf-8"):
            pass

    def test_fence_waits_for_a_running_write_which_is_undone(self):
        victim = self.cluster.client("victim")
        victim.id = victim.call_ok(f"prepare {CHANGES}")["id"]
        os.remove(self.block_file)
        victim.send("commit")
        node, manager = self.cluster.nodes[0], self.cluster.manager
        node.wait_for_log("loam: paused at node.write.claimed")
        victim.kill()
        manager.wait_for_log(r"session \d+ \(victim\) ended")
        end = now() + 2 * LEASE_S
        poll(lambda: now() > end, "twice the lease")
        self.assertNotRegex(manager.log(), rf"session {victim.session} is fenced everywhere")
        self.resume_writer()
        self.cluster.wait_until_fenced(victim)
        _, answer = self.writable_after(0)
        self.assertFalse(self.took_place(victim, answer))
        self.check_history()


class ClientStoppedTest(StepsTest):
    def check_outcome(self, victim, committed):
        """Continues the fenced victim. It must learn the outcome of its transaction, and commit in a new session."""
        self.cluster.wait_until_fenced(victim)
        victim.resume()
        reply = victim.receive()
        self.assertEqual(reply["outcome"], "committed" if committed else "aborted", reply)
        self.assertTrue(victim.call_ok("transact add:1=-1 add:2=1")["ok"])
        return reply

    def test_at_each_step_of_a_commit(self):
        for step, committed in COMMIT_STEPS.items():
            with self.subTest(step=step):
                victim = self.check_step(f"commit.{step}", "stop", False, committed)
                self.check_outcome(victim, committed)
                self.check_index()
        self.check_history()

    def test_at_each_step_of_an_abort(self):
        for step in ABORT_STEPS:
            with self.subTest(step=step):
                victim = self.check_step(f"abort.{step}", "stop", True, False)
                self.check_outcome(victim, False)
        self.check_history()


class ClientFencedTest(StepsTest):
    def make_cluster(self):
        return ProxiedCluster()

    def session_known(self, client):
        """Returns whether the commit manager knows the session: it is open, or has transactions left to recover."""
        status = json.loads(self.cluster.loam("status", "--json"))
        return any(session["id"] == client.session for session in status["sessions"])

    def test_writes_that_come_after_the_recovery_are_refused(self):
        """The victim stops before its writes and continues after its recovery. The proxy holds the reply that would
        tell it that it is fenced. No later recovery would undo its writes, so the storage nodes must refuse them.
        Another client has an older snapshot open, so that the nodes do not refuse the writes because they are too
        old."""
        other = self.cluster.client("other", address=self.cluster.address)
        other.call_ok("prepare read:8 add:9=0")
        victim = self.cluster.client("late", pause="client.commit.begun=stop;client.commit.writes_applied=kill")
        victim.id = victim.call_ok(f"prepare {CHANGES}")["id"]
        victim.send("commit")
        victim.wait_until_paused()
        self.cluster.to_manager.hold(down=True)
        self.cluster.wait_until_fenced(victim)
        poll(lambda: not self.session_known(victim), "its transaction is recovered")
        victim.resume()
        end = now() + LEASE_S / 2
        poll(lambda: now() > end, "the writes reach the nodes")
        self.cluster.to_manager.release()
        reply = victim.receive()
        self.assertEqual(reply["outcome"], "aborted", reply)
        self.assertEqual(reply["code"], "kFenced", reply)
        self.assertFalse(self.took_place(victim, other.call_ok("transact " + " ".join(f"read:{key}" for key in KEYS))))
        self.check_history()

    def stopped_with_its_writes_in(self, name):
        victim = self.cluster.client(name, pause="client.commit.writes_applied=stop")
        victim.id = victim.call_ok(f"prepare {CHANGES}")["id"]
        victim.send("commit")
        victim.wait_until_paused()
        return victim

    def seen_by(self, other, victim):
        return self.took_place(victim, other.call_ok("transact " + " ".join(f"read:{key}" for key in KEYS)))

    def test_a_completion_that_comes_after_the_end_of_its_session_is_refused(self):
        """All writes of the victim are applied. Its Complete arrives after the end of its session (R8, completion by
        the owner, recovery after the fence)."""
        other = self.cluster.client("other", address=self.cluster.address)
        victim = self.stopped_with_its_writes_in("held")
        self.cluster.to_manager.hold(up=True)
        victim.resume()
        self.cluster.wait_until_fenced(victim)
        self.cluster.to_manager.release()
        reply = victim.receive()
        self.assertEqual(reply["outcome"], "aborted", reply)
        self.assertFalse(self.seen_by(other, victim))
        self.check_history()

    def test_client_asks_for_a_lost_outcome_in_its_next_session(self):
        """The commit manager has accepted the commit, but its reply and the client's session are lost (R4,
        outcomes from the commit log)."""
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
        reply = victim.receive()
        self.assertEqual(reply["outcome"], "committed", reply)
        self.check_history()

    def test_open_transaction_is_fenced_and_acknowledged_commits_stay(self):
        victim = self.cluster.client("victim")
        session = victim.call_ok("session")["session"]
        done = victim.call_ok(f"transact {CHANGES}")
        victim.call_ok("prepare add:1=-1 add:2=1")
        victim.stop()
        self.cluster.wait_until_fenced(victim)
        victim.resume()
        reply = victim.call("commit")
        self.assertEqual(reply["code"], "kFenced", reply)
        after = victim.call_ok("transact read:1 read:2")
        self.assertEqual([version for _, version, _ in after["reads"]], [done["id"], done["id"]])
        victim.call_ok("transact add:1=-1 add:2=1")
        self.assertGreater(victim.call_ok("session")["session"], session)
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
