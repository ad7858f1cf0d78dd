"""Tests commit managers of another cluster, or with an older copy of their folder (R10, cluster identity). The storage
nodes keep their records, report the reason, and serve again when the commit manager with the current folder is back."""

import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import ACCOUNTS, BALANCE, DEADLINE_S, LOAM, ClusterTest, main, poll  # noqa: E402


class WrongManagerTest(ClusterTest):
    @property
    def data(self):
        return os.path.join(self.cluster.folder, "manager-data")

    def status(self):
        """Returns the output of `loam status` as text and as JSON, and its exit code."""
        texts = []
        for options in ((), ("--json",)):
            admin = self.cluster.manager.wait_for_log(r"administration at (\S+)").group(1)
            done = subprocess.run([LOAM, "status", "--admin", admin, *options], capture_output=True, text=True,
                                  timeout=DEADLINE_S, check=False)
            texts.append(done.stdout)
        return texts[0], json.loads(texts[1]), done.returncode

    def replace_folder(self, copy=None):
        """Starts the commit manager with `copy` or an empty folder. The current folder is kept for restore_folder()."""
        self.cluster.manager.kill()
        os.rename(self.data, self.data + ".right")
        if copy is not None:
            shutil.copytree(copy, self.data)
        self.cluster.start_manager()

    def restore_folder(self):
        self.cluster.manager.kill()
        shutil.rmtree(self.data)
        os.rename(self.data + ".right", self.data)
        self.cluster.start_manager()

    def check_refused(self, reason):
        """Checks that the commit manager refuses every node, that the nodes report the reason, and that clients get no
        data."""
        count = len(self.cluster.nodes)
        poll(lambda: len(self.status()[1]["manager"]["refused_nodes"]) == count, "the commit manager refuses all nodes")
        text, answer, code = self.status()
        self.assertEqual(code, 6, text)
        self.assertFalse(answer["ready"])
        self.assertRegex(text, reason)
        for node in self.cluster.nodes:
            node.wait_for_log(rf"{reason}.*keeps its records")
            self.assertTrue(node.running())
        for refused in answer["manager"]["refused_nodes"]:
            self.assertIn(refused["address"], text)
        reply = self.guide.call("transact read:1")
        self.assertFalse(reply["ok"], reply)
        return reply

    def check_records(self):
        """Checks after restore_folder() that every record exists, and that new ids are above the old ones."""
        keys = range(1, ACCOUNTS + 1)
        client = self.cluster.client("after")
        client.call_ok(f"writable 20000 {' '.join(map(str, keys))}")
        self.assertEqual(client.call_ok("sum")["sum"], ACCOUNTS * BALANCE)
        self.assertGreater(client.call_ok("begin 1")["first"], self.highest)
        self.check_history()
        self.assertEqual(self.status()[2], 0)

    def setUp(self):
        super().setUp()
        self.highest = self.guide.call_ok("begin 50")["last"]

    def test_empty_folder(self):
        self.replace_folder()
        reply = self.check_refused("of cluster [0-9a-f]{32}")
        self.assertEqual(reply["code"], "kWrongCluster", reply)
        self.restore_folder()
        self.check_records()

    def test_older_copy_of_the_folder(self):
        copy = os.path.join(self.cluster.folder, "copy")
        shutil.copytree(self.data, copy)
        self.cluster.manager.kill()
        self.cluster.start_manager()
        self.guide.call_ok("writable 20000 1 2")
        self.highest = self.guide.call_ok("begin 50")["last"]
        self.replace_folder(copy)
        poll(lambda: "does not contain" in self.status()[1]["manager"]["not_serving"], "the reason is reported")
        self.check_refused("by another start of the commit manager")
        self.restore_folder()
        self.check_records()


    def test_commit_log_without_commits_that_nodes_know_of(self):
        """The folder has an older copy of the commit log only, as if the disk had lost acknowledged writes."""
        log = os.path.join(self.data, "commit-log")
        older = os.path.join(self.cluster.folder, "older-log")
        shutil.copyfile(log, older)
        for _ in range(3):
            self.guide.call_ok("transact add:1=-1 add:2=1")
        flushed = self.status()[1]["manager"]["log_accepted"]
        poll(lambda: self.status()[1]["manager"]["log_flushed"] >= flushed, "the commits are flushed")
        publications = self.status()[1]["manager"]["publications"]
        self.guide.call_ok("transact add:1=-1 add:2=1")
        poll(lambda: self.status()[1]["manager"]["publications"] > publications, "the nodes learn of the commit")
        copy = os.path.join(self.cluster.folder, "copy")
        self.cluster.manager.kill()
        shutil.copytree(self.data, copy)
        shutil.copyfile(older, os.path.join(copy, "commit-log"))
        self.replace_folder(copy)
        self.check_refused("the commit log of the commit manager ends")
        self.restore_folder()
        self.check_records()


if __name__ == "__main__":
    main()
