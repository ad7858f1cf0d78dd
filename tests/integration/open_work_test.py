"""The running work of clients, as an operator sees it and ends it (`loam sessions`, `loam transactions`)."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import ClusterTest, main, poll  # noqa: E402


class OpenWorkTest(ClusterTest):
    def listed(self):
        return json.loads(self.cluster.loam("transactions", "--json"))

    def test_an_operator_finds_and_ends_the_transaction_that_holds_memory(self):
        holder = self.cluster.client("holder")
        transaction = holder.call_ok("prepare add:1=-5 add:2=5")["id"]
        for _ in range(3):
            self.guide.call_ok("transact add:3=-1 add:4=1")
        listed = self.listed()
        self.assertEqual(listed["open"], 1)
        oldest = listed["transactions"][0]
        self.assertEqual((oldest["client"], oldest["id"], oldest["kind"], oldest["state"]),
                         ("holder", transaction, "read_write", "active"))  # fmt: skip
        self.assertGreaterEqual(oldest["newer_ids"], 4)
        self.assertGreater(oldest["snapshot_age_ns"], 0)
        self.assertIn("stay in memory for session", self.cluster.loam("transactions"))
        sessions = [json.loads(line) for line in self.cluster.loam("sessions", "--json").splitlines()]
        self.assertEqual({one["name"]: one["open"] for one in sessions if not one["recoverer"]}, {"guide": 0, "holder": 1})

        self.cluster.loam("session", "end", oldest["session"])
        self.assertEqual(holder.call("commit")["code"], "kFenced")
        poll(lambda: self.listed()["transactions"] == [], "recovery has undone the transaction")
        self.assertTrue(self.guide.call_ok("transact add:1=-1 add:2=1")["ok"], "its keys can be written again")
        self.check_history()


if __name__ == "__main__":
    main()
