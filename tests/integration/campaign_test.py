"""Kills, stops and disconnects processes at random while clients move money, and then checks the histories.

    LOAM_SEED=7 LOAM_SECONDS=300 LOAM_COMMIT_LOG=sync python3 tests/integration/campaign_test.py PROGRAMS…
"""

import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import ClusterTest, LEASE_S, main, now, poll  # noqa: E402
from proxied_cluster import ProxiedCluster  # noqa: E402
from proxy import NetworkFaultInjector  # noqa: E402

SEED = int(os.environ.get("LOAM_SEED", "1"))
SECONDS = float(os.environ.get("LOAM_SECONDS", "40"))
COMMIT_LOG = os.environ.get("LOAM_COMMIT_LOG", "os")
CLIENTS = 3

CLIENT_POINTS = [f"client.commit.{step}" for step in (
    "begun", "writes_sent", "writes_applied", "completed", "answered")] + [
    f"client.abort.{step}" for step in ("failed", "undo_decided", "reverts_sent", "reverted", "completed")]
MANAGER_POINTS = ["manager.begin.executed", "manager.begin.answered", "manager.complete.executed",
                  "manager.commit.before_append", "manager.commit.appended", "manager.log.appended",
                  "manager.log.written", "manager.log.flushed", "manager.complete.answered", "recoverer.intents_read",
                  "recoverer.indexes_undone", "recoverer.reverted"]
RESTART_POINTS = ["manager.durable.before", "manager.durable.written", "manager.durable.renamed",
                  "manager.durable.after"]


class CampaignTest(ClusterTest):
    def make_cluster(self):
        return ProxiedCluster(manager_options=["--commit-log", COMMIT_LOG])

    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.started = 0
        self.clients = []
        self.counts = {}
        print(f"  seed {SEED} (LOAM_SEED={SEED} repeats the order of events)", file=sys.stderr)

    def start_client(self):
        self.started += 1
        pause = None
        if self.random.random() < 0.5:
            point, hits = self.random.choice(CLIENT_POINTS), self.random.randint(1, 300)
            pause = f"{point}@{hits}={self.random.choice(['kill', 'stop'])}"
        self.clients.append(self.cluster.launch_transfers(f"mover-{self.started}", SECONDS, self.started, pause=pause))

    def supervise_clients(self):
        """Replaces dead clients and continues some of the stopped ones."""
        for mover in list(self.clients):
            if not mover.running():
                self.clients.remove(mover)
            elif mover.stopped() and self.random.random() < 0.5:
                mover.resume()
        while len(self.clients) < CLIENTS:
            self.start_client()

    def supervise_manager(self):
        while not self.cluster.manager.running():
            draw = self.random.random()
            if draw < 0.25:
                self.cluster.launch_manager(pause=f"{self.random.choice(RESTART_POINTS)}=kill")
                self.cluster.manager.wait_until_paused()
            elif draw < 0.5:
                point, hits = self.random.choice(MANAGER_POINTS), self.random.randint(1, 200)
                self.cluster.launch_manager(pause=f"{point}@{hits}=kill")
            else:
                self.cluster.launch_manager()

    def kill_a_client(self):
        self.random.choice(self.clients).kill()

    def stop_a_client(self):
        self.random.choice(self.clients).stop()

    def kill_the_manager(self):
        self.cluster.manager.kill()

    def stop_for_a_while(self, process):
        process.stop()
        end = now() + self.random.uniform(0, 2 * LEASE_S)
        poll(lambda: now() > end, "a while")
        process.resume()

    def stop_the_manager(self):
        if self.cluster.manager.running():
            self.stop_for_a_while(self.cluster.manager)

    def stop_a_node(self):
        self.stop_for_a_while(self.random.choice(self.cluster.nodes))

    def inject_network_faults(self):
        disturber = NetworkFaultInjector(self.cluster.proxies(), self.random.random())
        end = now() + 0.5
        poll(lambda: now() > end, "a while")
        disturber.stop()

    def test_processes_die_at_random(self):
        end = now() + SECONDS
        events = [self.kill_a_client, self.stop_a_client, self.kill_the_manager, self.stop_the_manager,
                  self.stop_a_node, self.inject_network_faults]
        while now() < end:
            self.supervise_manager()
            self.supervise_clients()
            event = self.random.choice(events)
            self.counts[event.__name__] = self.counts.get(event.__name__, 0) + 1
            event()
            quiet = now() + self.random.uniform(0.1, 1)
            poll(lambda: now() > quiet, "a quiet interval")
        for mover in self.clients:
            mover.kill()
        self.supervise_manager()
        for node in self.cluster.nodes:
            self.assertTrue(node.running(), f"{node.name} ended")
        poll(lambda: self.guide.call("writable 1000 " + " ".join(map(str, range(1, 21))))["ok"],
             "everything is writable again")
        checked = self.check_history()
        print(f"  {self.counts}; {self.started} clients; {checked.committed} commits, {checked.resolved} resolved "
              f"afterwards, {checked.vanished} unknown that did not take place; {checked.reads} reads", file=sys.stderr)
        self.assertGreater(checked.committed, 100)


if __name__ == "__main__":
    main()
