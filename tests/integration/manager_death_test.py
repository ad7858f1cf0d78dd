"""The commit manager killed at each step of a begin, a commit, a write of its commit log, a change of its durable state
and a recovery, and started again (R11); ids are never given twice (R12)."""

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
        """Kills and starts the manager, if it is not dead already."""
        self.cluster.manager.kill()
        self.cluster.start_manager(pause)

    def writable(self, client=None):
        return (client or self.guide).need(f"writable 20000 {' '.join(map(str, KEYS))}")


class ManagerKilledTest(ManagerTest):
    def kill_at(self, point):
        """Under load; what was acknowledged holds, and the clients go on with the next manager."""
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

    def test_of_a_begin(self):
        for point in ("manager.begin.executed@300", "manager.begin.answered@300"):
            with self.subTest(point=point):
                self.kill_at(point)
        self.check_history()

    def test_of_a_commit(self):
        for point in ("manager.complete.executed@200", "manager.commit.before_append@200",
                      "manager.commit.appended@200", "manager.log.written@200", "manager.complete.answered@200"):
            with self.subTest(point=point):
                self.kill_at(point)
        self.check_history()

    def test_of_its_durable_state(self):
        for point in ("manager.durable.before", "manager.durable.written", "manager.durable.renamed",
                      "manager.durable.after"):
            with self.subTest(point=point):
                done = self.guide.need(f"transact {CHANGES}")
                self.cluster.manager.kill()
                self.cluster.launch_manager(pause=f"{point}=kill")
                self.cluster.manager.wait_until_paused()
                self.cluster.start_manager()
                self.assertEqual([version for _, version, _ in self.writable()["reads"]], [done["id"]] * len(KEYS))
        self.check_history()


class LoggedCommitTest(ManagerTest):
    """The manager dies at one step of one commit: the commit is in the commit log, or it is not. Both its client and the
    records say the same."""

    # Whether the commit took place; None: the writer of the commit log may have got on meanwhile, or not.
    STEPS = {"manager.commit.before_append": False, "manager.commit.appended": None, "manager.log.appended": False,
             "manager.log.written": True, "manager.log.flushed": True, "manager.complete.answered": True}

    def check_step(self, point, expected):
        self.restart(pause=f"{point}=kill")
        victim = self.cluster.client(f"victim.{point}")
        prepare = f"prepare {CHANGES}"  # refused while the manager recovers earlier sessions
        victim.id = poll(lambda: (answer := victim.ask(prepare))["ok"] and answer, prepare)["id"]
        victim.send("commit")
        self.cluster.manager.wait_until_paused()
        self.cluster.start_manager()
        told = victim.receive()
        versions = [version for _, version, _ in self.writable()["reads"]]
        committed = versions[0] == victim.id
        self.assertEqual([version == victim.id for version in versions], [committed] * len(KEYS), "half of it is there")
        self.assertEqual(told["outcome"], "committed" if committed else "aborted", told)
        if expected is not None:
            self.assertEqual(committed, expected)

    def test_each_step_of_a_commit(self):
        for point, expected in self.STEPS.items():
            with self.subTest(point=point):
                self.check_step(point, expected)
        self.check_history()

    def test_a_damaged_tail_is_cut(self):
        """What a power cut may leave behind the last record: half a record, or room that was never written."""
        for tail in (b"\x5a" * 7, b"\0" * 4096):
            with self.subTest(tail=tail[:1]):
                done = self.guide.need(f"transact {CHANGES}")
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

    # How often a restart passes the step, which recovers all earlier sessions at both nodes.
    STEPS = {"intents_read": 2, "indexes_undone": 1, "reverted": 1}

    def restart_with(self, pause):
        """The manager has recovered all earlier sessions, and has not come to its pause point."""
        def serves():
            if not self.cluster.manager.running():  # a node did not answer at once: it came by more often
                self.cluster.start_manager(pause)
            return self.guide.ask("writable 1000 1")["ok"]

        self.restart(pause)
        poll(serves, f"the manager serves and is to stop at {pause}")

    def check(self, step):
        self.restart_with(f"recoverer.{step}@{self.STEPS[step] + 1}=kill")
        victim = self.cluster.client(step, pause="client.commit.writes_applied=kill")
        victim.id = victim.need(f"prepare {CHANGES}")["id"]
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
        """The manager that starts again recovers all earlier sessions, dies meanwhile, and starts once more."""
        for step in self.STEPS:
            with self.subTest(step=step):
                victim = self.cluster.client(f"old.{step}", pause="client.commit.writes_applied=stop")
                victim.id = victim.need(f"prepare {CHANGES}")["id"]
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
    def test_ids_are_never_given_twice(self):
        highest = self.guide.need("begin 50")["last"]
        for i in range(10):
            if i % 2:
                self.assertEqual(self.cluster.manager.terminate(), 0)
            self.restart()
            self.writable()
            answer = self.guide.need("begin 50")
            self.assertGreater(answer["first"], highest)
            highest = answer["last"]
        self.check_history()

    def test_transactions_that_were_open_are_undone_and_held_ones_refused(self):
        victim = self.cluster.client("victim", pause="client.commit.writes_applied=stop")
        victim.id = victim.need(f"prepare {CHANGES}")["id"]
        victim.send("commit")
        victim.wait_until_paused()
        self.guide.need("prepare add:8=1 add:9=-1")
        other = self.cluster.client("other")
        done = other.need("transact add:10=1 add:11=-1")
        self.restart()
        answer = self.writable(other)  # begins are answered, so every older session is fenced
        self.assertNotIn(victim.id, [version for _, version, _ in answer["reads"]])
        reads = other.need("transact read:10 read:11")["reads"]
        self.assertEqual([version for _, version, _ in reads], [done["id"]] * 2, "an acknowledged commit holds")
        told = self.guide.ask("commit")
        self.assertEqual(told["outcome"], "aborted", told)
        victim.resume()
        self.assertEqual(victim.receive()["outcome"], "aborted")
        victim.need(f"transact {CHANGES}")
        self.check_history()

    def test_killed_again_and_again_under_load(self):
        movers = [self.cluster.transfers(f"mover-{i}", seconds=6, seed=i) for i in range(2)]
        # Attempts that fail are quick, so that a manager may be killed before it serves, a hundred times a second. A node
        # is refused that has missed 1,024 starts (decision 0019): there are fewer.
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
