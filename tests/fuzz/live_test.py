"""Sends mutated messages to a commit manager and a storage node on loopback (tests/fuzz/live_mutations.cc).

LIVE_MESSAGES is the number of messages; without it the run is short, as in continuous integration. LOAM_SEED repeats a
run. The test checks:

* Every reply is well-formed.
* A malformed message ends its connection and nothing else. No process dies.
* No process grows by more than 64 MiB during the last nine tenths of the messages.
* A connection costs at most 64 KiB before its handshake is done.
* The 99th percentile of another client's gets is at most 3 times the percentile that the client has while the messages
  are well-formed. tests/fuzz/tail_comparison.h says how the test decides this on a busy machine.
"""

import os
import random
import resource
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
import cluster as clusters  # noqa: E402

MESSAGES = int(os.environ.get("LIVE_MESSAGES", "0"))
SHORT = ["--messages", "40000", "--half-open", "500", "--walk-stride", "40", "--slices", "8", "--slice-ms", "150"]


class LiveMutations(unittest.TestCase):
    def test_servers_survive_mutated_messages(self):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        options = SHORT if MESSAGES == 0 else ["--messages", str(MESSAGES)]
        seed = os.environ.get("LOAM_SEED") or str(random.SystemRandom().randrange(1 << 32))
        with clusters.Cluster(nodes=1, lease_s=2, node_lease_s=2,
                              manager_options=["--max-open-per-session", 64]) as cluster:
            command = [clusters.WORKLOAD, "--manager", cluster.address, "--node", cluster.addresses["node-1"],
                       "--manager-pid", str(cluster.manager.pid), "--node-pid", str(cluster.nodes[0].pid),
                       "--seed", seed, *options]  # fmt: skip
            code = subprocess.run(command, check=False).returncode
            alive = [process.name for process in (cluster.manager, *cluster.nodes) if process.running()]
            if code != 0 or len(alive) != 2:
                cluster.print_logs()
            self.assertEqual(alive, ["manager", "node-1"], "no server dies")
            self.assertEqual(code, 0)
            self.assertEqual(cluster.nodes[0].terminate(), 0)
            self.assertEqual(cluster.manager.terminate(), 0)


if __name__ == "__main__":
    clusters.main()
