"""The running work of clients, as an operator sees it and ends it (`loam queries`, `loam sessions`, `loam
transactions`)."""

import json
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, ClusterTest, DEADLINE_S, LOAM, main, poll  # noqa: E402

ROWS, ROW_BYTES = 12, 100_000  # more chunks at each storage node than a scan with one credit gets


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
        self.assertRegex(oldest["address"], r"127\.0\.0\.1:\d+")
        self.assertIn("stay in memory for session", self.cluster.loam("transactions"))
        sessions = [json.loads(line) for line in self.cluster.loam("sessions", "--json").splitlines()]
        self.assertEqual({one["name"]: one["open"] for one in sessions if not one["recoverer"]}, {"guide": 0, "holder": 1})

        self.assertIsNone(json.loads(self.cluster.loam("status", "--json", "--old-snapshot", "1h"))["oldest_snapshot"])
        self.assertNotIn("The oldest snapshot", self.cluster.loam("status", "--old-snapshot", "1h"))
        named = json.loads(self.cluster.loam("status", "--json", "--old-snapshot", "1ns"))["oldest_snapshot"]
        self.assertEqual((named["client"], named["session"]), ("holder", oldest["session"]))
        text = self.cluster.loam("status", "--old-snapshot", "1ns")
        self.assertIn(f"Session {oldest['session']} of holder at {named['address']} holds it", text)
        ending = re.search("`loam (session end .*)`", text).group(1)
        self.assertEqual(ending.split()[:3], ["session", "end", str(oldest["session"])])

        self.cluster.loam(*ending.split()[:3])
        self.assertEqual(holder.call("commit")["code"], "kFenced")
        poll(lambda: self.listed()["transactions"] == [], "recovery has undone the transaction")
        self.assertTrue(self.guide.call_ok("transact add:1=-1 add:2=1")["ok"], "its keys can be written again")
        self.check_history()


class OpenQueries(ClusterTest):
    def queries(self):
        return [json.loads(line) for line in self.cluster.loam("queries", "--json").splitlines()]

    def run_loam(self, *arguments):
        return subprocess.run([LOAM, *arguments, "--connect", self.cluster.address], capture_output=True, text=True,
                              timeout=DEADLINE_S, check=False)

    def open_streams(self, *names):
        """Fills a table with rows, and starts clients that each have a scan of it under way. Returns the clients."""
        self.guide.call_ok("create big text")
        path = os.path.join(self.cluster.folder, "big.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write("key,value\n")
            file.writelines(f"{key},{'x' * ROW_BYTES}\n" for key in range(ROWS))
        self.cluster.loam("import", "big", path, "--key", "key")
        clients = [self.cluster.client(name) for name in names]
        for client in clients:
            client.call_ok("stream big")
        return clients


class QueriesTest(OpenQueries):
    def make_cluster(self):
        return Cluster(lease_s=300)  # a client that hangs keeps its session

    def test_an_operator_finds_and_ends_a_query(self):
        self.assertEqual(self.queries(), [])
        reader, other = self.open_streams("reader", "other")

        def waiting():
            listed = self.queries()
            return listed if all(part["state"] == "waiting_for_client" for query in listed for part in query["nodes"]) else []

        listed = poll(waiting, "the storage nodes wait for both clients")
        self.assertEqual(len({query["id"] for query in listed}), 2, "two clients run the same query")
        by_client = {query["client"]: query for query in listed}
        query = by_client["reader"]
        self.assertEqual((query["session"], query["table"]), (reader.session, "big"))
        self.assertRegex(query["address"], r"127\.0\.0\.1:\d+")
        self.assertGreater(query["snapshot_age_ns"], 0)
        self.assertGreaterEqual(query["age_ns"], query["waiting_ns"])
        self.assertEqual([part["node"] for part in query["nodes"]], [1, 2])
        self.assertEqual((query["chunks"], query["unread_chunks"]), (2, 2), "one at each storage node")
        for field in ("pages", "pages_done", "records"):
            self.assertEqual(query[field], sum(part[field] for part in query["nodes"]), field)
        self.assertGreater(query["pages"], query["pages_done"])
        text = self.cluster.loam("queries")
        for word in (query["id"], by_client["other"]["id"], "reader", "big", "waits for client"):
            self.assertIn(word, text)

        ended = json.loads(self.cluster.loam("query", "cancel", query["id"], "--json"))
        self.assertEqual(ended["cancelled"], query["id"])
        self.assertLessEqual(set(ended["nodes"]), {1, 2})
        lost = reader.call("drain")
        self.assertEqual((lost["code"], lost["rows"]), ("kCancelled", 0))
        self.assertIn("cancelled by an operator", lost["message"])
        self.assertEqual(poll(lambda: len(self.queries()) == 1, "the query has ended") and self.queries()[0]["client"],
                         "other")
        again = self.run_loam("query", "cancel", query["id"])
        self.assertEqual(again.returncode, 1)
        self.assertIn("no storage node runs query " + query["id"], again.stderr)
        self.assertTrue(reader.call_ok("transact add:1=-1 add:2=1")["ok"], "the session lives on")
        self.assertEqual(other.call_ok("drain")["rows"], ROWS, "the other query is undisturbed")
        self.check_history()

    def test_a_query_of_a_client_that_hangs_ends_at_every_node(self):
        reader, = self.open_streams("reader")
        query = poll(self.queries, "the query runs")[0]
        reader.stop()
        ended = json.loads(self.cluster.loam("query", "cancel", query["id"], "--json"))
        self.assertEqual(ended["nodes"], [1, 2])
        self.assertEqual(self.queries(), [])


class HangingNodeTest(OpenQueries):
    def make_cluster(self):
        return Cluster(node_lease_s=300)  # the commit manager does not notice that the storage node hangs

    def test_the_list_says_which_nodes_do_not_answer(self):
        self.open_streams("reader")
        query = poll(lambda: next((one for one in self.queries() if len(one["nodes"]) == 2), None), "the query runs")
        hanging = self.cluster.nodes[1]
        number = self.cluster.number(hanging)
        hanging.stop()
        for words, message in ((["queries"], "its queries are missing from the list"),
                               (["query", "cancel", query["id"]], f"it may still run query {query['id']}")):
            done = self.run_loam(*words)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(query["id"], done.stdout)
            self.assertRegex(done.stderr, f"storage node {number}: the administration at .* does not answer: .*{message}")
        hanging.resume()


if __name__ == "__main__":
    main()
