"""The commit manager is killed at each step of a begin, a commit, a write of its commit log, a change of its durable
state and a recovery, and started again (R11, commit log and restart). Ids are never assigned twice (R12, ids at
begin)."""

import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, ClusterTest, main, now, poll  # noqa: E402

KEYS = (1, 2, 3, 4, 5, 6)
CHANGES = "add:1=-5 add:2=5 add:3=-1 add:4=1 add:5=-2 add:6=2"

MOST_KILLS = 300


class ManagerTest(ClusterTest):
    def restart(self, pause=None):
        """Kills the manager, if it still runs, and starts it."""
        self.cluster.manager.kill()
        self.cluster.start_manager(pause)

    def writable(self, client=None):
        return (client or self.guide).call_ok(f"writable 20000 {' '.join(map(str, KEYS))}")


class ManagerKilledTest(ManagerTest):
    def kill_at(self, point):
        """Kills the manager at a pause point under load. Clients must continue with the restarted manager."""
        movers = [self.cluster.transfers(f"{point}.{i}", seconds=3, seed=i, fibers=3) for i in range(2)]
        self.restart(pause=f"{point}=kill")
        self.cluster.manager.wait_until_paused()
        died = now()
        self.cluster.start_manager()
        self.writable()
        print(f"  {point}: begins again after {(now() - died) * 1000:.0f} ms", file=sys.stderr)
        for mover in movers:
            codes = mover.receive()["codes"]
            self.assertGreater(codes.get("kOk", 0), 20, codes)
            self.assertEqual(mover.wait(), 0)

    def test_killed_during_a_begin(self):
        for point in ("manager.begin.executed@75", "manager.begin.answered@75"):
            with self.subTest(point=point):
                self.kill_at(point)
        self.check_history()

    def test_killed_during_a_commit(self):
        for point in ("manager.complete.executed@50", "manager.commit.before_append@50",
                      "manager.commit.appended@50", "manager.log.written@50", "manager.complete.answered@50"):
            with self.subTest(point=point):
                self.kill_at(point)
        self.check_history()

    def test_killed_during_a_change_of_its_state(self):
        for point in ("manager.durable.before", "manager.durable.written", "manager.durable.renamed",
                      "manager.durable.after"):
            with self.subTest(point=point):
                done = self.guide.call_ok(f"transact {CHANGES}")
                self.cluster.manager.kill()
                self.cluster.launch_manager(pause=f"{point}=kill")
                self.cluster.manager.wait_until_paused()
                self.cluster.start_manager()
                self.assertEqual([version for _, version, _ in self.writable()["reads"]], [done["id"]] * len(KEYS))
        self.check_history()


class LoggedCommitTest(ManagerTest):
    """The manager dies at one step of one commit. The commit log decides the outcome: what the client is told and the
    records must agree with it."""

    # True: the commit takes place. None: it may, because the thread that writes the commit log runs in parallel.
    STEPS = {"manager.commit.before_append": False, "manager.commit.appended": None, "manager.log.appended": False,
             "manager.log.written": True, "manager.log.flushed": True, "manager.complete.answered": True}

    def check_step(self, point, expected):
        self.restart(pause=f"{point}=kill")
        victim = self.cluster.client(f"victim.{point}")
        prepare = f"prepare {CHANGES}"  # the manager refuses it while it recovers earlier sessions
        victim.id = poll(lambda: (answer := victim.call(prepare))["ok"] and answer, prepare)["id"]
        victim.send("commit")
        self.cluster.manager.wait_until_paused()
        self.cluster.start_manager()
        reply = victim.receive()
        versions = [version for _, version, _ in self.writable()["reads"]]
        committed = versions[0] == victim.id
        self.assertEqual([version == victim.id for version in versions], [committed] * len(KEYS), "a part is visible")
        self.assertEqual(reply["outcome"], "committed" if committed else "aborted", reply)
        if expected is not None:
            self.assertEqual(committed, expected)

    def test_each_step_of_a_commit(self):
        for point, expected in self.STEPS.items():
            with self.subTest(point=point):
                self.check_step(point, expected)
        self.check_history()

    def test_restart_truncates_a_damaged_tail(self):
        """After a power cut, a part of a log record or unwritten reserved space may follow the last log record of the commit log."""
        for tail in (b"\x5a" * 7, b"\0" * 4096):
            with self.subTest(tail=tail[:1]):
                done = self.guide.call_ok(f"transact {CHANGES}")
                self.cluster.manager.kill()
                with open(os.path.join(self.cluster.folder, "manager-data", "commit-log"), "ab") as log:
                    log.write(tail)
                self.cluster.start_manager()
                self.assertEqual([version for _, version, _ in self.writable()["reads"]], [done["id"]] * len(KEYS))
        self.check_history()


class SyncedCommitTest(LoggedCommitTest):
    def make_cluster(self):
        return Cluster(manager_options=["--commit-log", "sync"])

    def test_under_load(self):
        movers = [self.cluster.transfers(f"mover-{i}", seconds=4, seed=i) for i in range(2)]
        for _ in range(4):
            movers[0].wait_for_attempts(100)
            self.restart()
        for mover in movers:
            self.assertGreater(mover.receive()["codes"].get("kOk", 0), 50)
        self.check_history()


class RecovererKilledTest(ManagerTest):
    """The manager, with its recoverer, dies at one step of the recovery of a transaction whose client is dead."""

    # How many times a restart passes the step while it recovers all earlier sessions at both nodes.
    STEPS = {"intents_read": 2, "indexes_undone": 1, "reverted": 1}

    def restart_with(self, pause):
        """Starts the manager, and waits until it has recovered all earlier sessions. It has not yet reached the pause
        point."""
        def serves():
            # If a node does not answer at once, the recoverer passes the step more times, and the manager dies too
            # early.
            if not self.cluster.manager.running():
                self.cluster.start_manager(pause)
            return self.guide.call("writable 1000 1")["ok"]

        self.restart(pause)
        poll(serves, f"the manager serves, and will stop at {pause}")

    def check(self, step):
        self.restart_with(f"recoverer.{step}@{self.STEPS[step] + 1}=kill")
        victim = self.cluster.client(step, pause="client.commit.writes_applied=kill")
        victim.id = victim.call_ok(f"prepare {CHANGES}")["id"]
        victim.send("commit")
        victim.wait_until_paused()
        self.cluster.manager.wait_until_paused()
        self.cluster.start_manager()
        self.assertNotIn(victim.id, [version for _, version, _ in self.writable()["reads"]])

    def test_at_each_step(self):
        for step in self.STEPS:
            with self.subTest(step=step):
                self.check(step)
        self.check_history()

    def test_at_each_step_after_a_restart(self):
        """The restarted manager dies while it recovers an earlier session, and starts again."""
        for step in self.STEPS:
            with self.subTest(step=step):
                victim = self.cluster.client(f"old.{step}", pause="client.commit.writes_applied=stop")
                victim.id = victim.call_ok(f"prepare {CHANGES}")["id"]
                victim.send("commit")
                victim.wait_until_paused()
                self.cluster.manager.kill()
                self.cluster.launch_manager(pause=f"recoverer.{step}=kill")
                self.cluster.manager.wait_until_paused()
                self.cluster.start_manager()
                self.assertNotIn(victim.id, [version for _, version, _ in self.writable()["reads"]])
                victim.resume()
                self.assertEqual(victim.receive()["outcome"], "aborted")
        self.check_history()


class RestartTest(ManagerTest):
    def test_ids_are_never_assigned_twice(self):
        highest = self.guide.call_ok("begin 50")["last"]
        for i in range(10):
            if i % 2:
                self.assertEqual(self.cluster.manager.terminate(), 0)
            self.restart()
            self.writable()
            answer = self.guide.call_ok("begin 50")
            self.assertGreater(answer["first"], highest)
            highest = answer["last"]
        self.check_history()

    def test_restart_aborts_open_transactions(self):
        victim = self.cluster.client("victim", pause="client.commit.writes_applied=stop")
        victim.id = victim.call_ok(f"prepare {CHANGES}")["id"]
        victim.send("commit")
        victim.wait_until_paused()
        self.guide.call_ok("prepare add:8=1 add:9=-1")
        other = self.cluster.client("other")
        done = other.call_ok("transact add:10=1 add:11=-1")
        self.restart()
        answer = self.writable(other)  # an answered begin shows that every older session is fenced
        self.assertNotIn(victim.id, [version for _, version, _ in answer["reads"]])
        reads = other.call_ok("transact read:10 read:11")["reads"]
        self.assertEqual([version for _, version, _ in reads], [done["id"]] * 2, "an acknowledged commit is kept")
        reply = self.guide.call("commit")
        self.assertEqual(reply["outcome"], "aborted", reply)
        victim.resume()
        self.assertEqual(victim.receive()["outcome"], "aborted")
        victim.call_ok(f"transact {CHANGES}")
        self.check_history()

    def test_killed_again_and_again_under_load(self):
        movers = [self.cluster.transfers(f"mover-{i}", seconds=6, seed=i) for i in range(2)]
        # Attempts fail quickly while no manager serves, so the manager may be killed a hundred times a second. A
        # manager refuses a node that has missed 1,024 starts (decision 0019), so the number of kills stays below that.
        kills = 0
        while kills < MOST_KILLS and any(mover.running() for mover in movers):
            movers[0].wait_for_attempts(50)
            self.cluster.manager.signal(signal.SIGKILL)
            self.cluster.manager.wait()
            self.cluster.start_manager()
            kills += 1
        for mover in movers:
            self.assertGreater(mover.receive()["codes"].get("kOk", 0), 50)
        self.check_history()


if __name__ == "__main__":
    main()
