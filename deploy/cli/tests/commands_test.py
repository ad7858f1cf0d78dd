"""Tests every subcommand with a running cluster: its output for people and, with --json, for programs."""

import json
import signal
import subprocess
import unittest

import cluster
from cluster import ClusterTest, Dev, SAMPLE, loam


class TableTest(ClusterTest):
    def test_creates_lists_describes_and_drops_a_table(self):
        self.create("id:int64", "note:text?", "x:float32?", "raw:blob?")
        described = self.objects("table", "describe", self.table)
        self.assertEqual(described[0], {"field": "id", "type": "int64", "nullable": "no"})
        self.assertEqual(described[1], {"field": "note", "type": "text", "nullable": "yes"})
        listed = {table["name"]: table for table in self.objects("table", "list")}
        self.assertEqual(listed[self.table]["fields"], "id:int64,note:text?,x:float32?,raw:blob?")
        self.assertEqual(listed[self.table]["kind"], "transactional")
        self.assertIn(self.table, self.good("table", "list"))
        self.assertEqual(self.objects("table", "drop", self.table, "--yes"), [{"dropped": self.table}])
        self.assertNotIn(self.table, self.good("table", "list"))
        self.bad(1, "table", "drop", self.table, "--yes", says=self.table)

    def test_creating_the_same_table_again_changes_nothing(self):
        self.create("id:int64")
        first = self.objects("table", "create", self.table, "--field", "id:int64")
        self.assertEqual(first, self.objects("table", "create", self.table, "--field", "id:int64"))

    def test_renames_a_table_with_its_records_and_indexes(self):
        new, index = f"{self.table}_new", f"{self.table}_by_n"
        self.create("n:int64")
        self.good("put", self.table, 1, "n=7")
        self.good("index", "create", index, "--table", self.table, "--fields", "n")
        before = {table["name"]: table for table in self.objects("table", "list")}[self.table]
        self.assertEqual(self.objects("table", "rename", self.table, new), [{**before, "name": new}])
        self.assertEqual(self.objects("get", new, 1), [{"_key": 1, "n": 7}])
        self.assertEqual(self.objects("scan", new, "--index", index, "--with-key"), [{"_key": 1, "n": 7}])
        self.assertIn(f"index {index}: n", self.good("table", "describe", new))
        tables = self.objects("stats")[0]["nodes"][0]["statistics"]["tables"]
        of = {table["name"]: table["index_of"] for table in tables}
        self.assertEqual(of.get(index), new)
        self.assertNotIn(self.table, of)
        result = self.bad(1, "get", self.table, 1, says=f"there is no table {self.table}")
        self.assertIn("table list", result.stderr)
        self.create("n:int64")
        self.assertEqual(self.count(), 0, "the old name is free for another table")
        self.assertEqual(self.good("table", "rename", new, f"{new}er"), f"table {new} is named {new}er now\n")

    def test_rename_refuses_names_that_are_taken(self):
        other, index = f"{self.table}_other", f"{self.table}_by_n"
        self.create("n:int64")
        self.good("table", "create", other, "--field", "n:int64")
        self.good("index", "create", index, "--table", self.table, "--fields", "n")
        self.bad(1, "table", "rename", self.table, other, says=f"a table named {other} exists")
        self.bad(1, "table", "rename", self.table, index, says=f"an index named {index} exists")
        self.bad(1, "table", "rename", index, f"{index}_2", says=f"{index} is an index, and an index keeps its name")
        self.bad(1, "table", "rename", "nowhere", other, says="there is no table nowhere")
        self.bad(1, "table", "rename", self.table, self.table, says="has this name already")
        self.bad(1, "table", "rename", self.table, "no spaces", says="no spaces")
        self.bad(2, "table", "rename", self.table)

    def test_adds_a_field_to_a_table_in_use(self):
        self.create("n:int64", "note:text?")
        for key in (1, 2, 3):
            self.good("put", self.table, key, f"n={key}", "note=old")
        extended = self.objects("table", "add-field", self.table, "day:date?")
        self.assertEqual(extended[0]["fields"], "n:int64,note:text?,day:date?")
        self.assertEqual(extended, self.objects("table", "add-field", self.table, "day:date?"), "a repetition")
        self.assertEqual(self.objects("get", self.table, 1), [{"_key": 1, "n": 1, "note": "old", "day": None}])
        self.good("put", self.table, 2, "day=2024-02-29")
        self.good("put", self.table, 4, "n=4", "day=2023-01-01")
        self.assertEqual(self.objects("get", self.table, 2, 4),
                         [{"_key": 2, "n": 2, "note": "old", "day": "2024-02-29"},
                          {"_key": 4, "n": 4, "note": None, "day": "2023-01-01"}])
        rows = self.objects("scan", self.table, "--with-key", "--where", "day is null", "--order-by", "n")
        self.assertEqual([row["_key"] for row in rows], [1, 3])
        self.assertEqual(self.objects("scan", self.table, "--aggregate", "count(*) as n, count(day) as days, max(day) as latest"),
                         [{"n": 4, "days": 2, "latest": "2024-02-29"}])
        index = f"{self.table}_by_day"
        self.good("index", "create", index, "--table", self.table, "--fields", "day")
        rows = self.objects("scan", self.table, "--index", index, "--with-key")
        self.assertEqual([row["_key"] for row in rows], [1, 3, 4, 2], "NULL comes first")
        # A second field, and rows of three different layouts.
        self.good("table", "add-field", self.table, "price:decimal(12,2)?")
        self.good("put", self.table, 3, "price=1.5", "note=new")
        self.assertEqual(self.objects("get", self.table, 3),
                         [{"_key": 3, "n": 3, "note": "new", "day": None, "price": 1.5}])
        self.assertEqual(self.objects("scan", self.table, "--aggregate", "sum(price) as price, sum(n) as n"),
                         [{"price": 1.5, "n": 10}])

    def test_other_changes_of_a_schema_are_refused(self):
        self.create("n:int64")
        self.bad(2, "table", "add-field", self.table, "m:int64", says="write m:int64?")
        self.bad(1, "table", "add-field", self.table, "n:int64?", says="fields are neither changed nor removed")
        self.bad(2, "table", "add-field", self.table, "m:nothing?")
        self.bad(1, "table", "add-field", "nowhere", "m:int64?", says="there is no table nowhere")
        self.good("table", "add-field", self.table, "m:int64?")
        self.bad(1, "table", "add-field", self.table, "m:text?", says="fields are neither changed nor removed")

    def test_drop_asks_for_confirmation(self):
        self.create("id:int64")
        self.bad(2, "table", "drop", self.table, stdin="", says="use --yes to confirm")
        self.assertEqual(self.count(), 0)


class RecordTest(ClusterTest):
    def test_puts_gets_and_deletes(self):
        self.create("balance:int64", "note:text?", "raw:blob?")
        self.assertEqual(self.objects("put", self.table, 7, "balance=-5", "note=a=b", "raw=x'00ff'"),
                         [{"table": self.table, "key": 7, "written": "new"}])
        self.assertEqual(self.objects("get", self.table, 7),
                         [{"_key": 7, "balance": -5, "note": "a=b", "raw": "00ff"}])
        self.assertEqual(self.objects("put", self.table, 7, "balance=6", "--null", "note")[0]["written"], "changed")
        self.assertEqual(self.objects("get", self.table, 7),
                         [{"_key": 7, "balance": 6, "note": None, "raw": "00ff"}])
        self.assertIn("balance", self.good("get", self.table, 7))
        self.assertEqual(self.good("get", self.table, 7, "--csv"), "_key,balance,note,raw\n7,6,,x'00ff'\n")
        self.assertEqual(self.objects("delete", self.table, 7), [{"table": self.table, "deleted": 7}])
        self.bad(1, "get", self.table, 7, says=f"table {self.table} has no record 7")

    def test_stores_booleans_dates_timestamps_and_decimals(self):
        fields = ["yes:boolean?", "day:date?", "at:timestamp?", "price:decimal(12,2)?", "great:decimal(38,2)?"]
        self.create(*fields)
        listed = {table["name"]: table["fields"] for table in self.objects("table", "list")}
        self.assertEqual(listed[self.table], ",".join(fields))
        great = "-" + 35 * "9" + ".99"
        self.good("put", self.table, 1, "yes=true", "day=2024-02-29", "at=2024-02-29 12:34:56.5+02:00", "price=-12.345",
                  f"great={great}")
        self.good("put", self.table, 2, "yes=false", "day=0001-01-01", "price=7")
        self.assertEqual(self.good("get", self.table, 1, "--csv").splitlines()[1],
                         f"1,true,2024-02-29,2024-02-29 10:34:56.5,-12.35,{great}")
        self.assertIn('"yes":true,"day":"2024-02-29"', self.good("get", self.table, 1, "--json"))
        self.assertIn(f'"price":-12.35,"great":{great}', self.good("get", self.table, 1, "--json"))
        self.assertEqual(self.objects("get", self.table, 2)[0]["great"], None)
        scanned = self.objects("scan", self.table, "--where", "day < '2000-01-01' and price = 7.0 and yes = 'false'",
                               "--with-key")
        self.assertEqual([row["_key"] for row in scanned], [2])
        self.assertEqual(self.good("scan", self.table, "--csv", "--aggregate",
                                   "sum(price), avg(price), min(great), max(day), count(at)").splitlines()[1],
                         f"-5.35,-2.6750000000000000,{great},2024-02-29,1")
        self.good("index", "create", f"{self.table}_by_price", "--table", self.table, "--fields", "price")
        self.assertEqual([row["_key"] for row in self.objects("scan", self.table, "--index",
                                                               f"{self.table}_by_price", "--with-key")],
                         [1, 2])
        self.bad(4, "put", self.table, 3, "price=10000000000", says="has more than 12 digits")
        self.bad(4, "put", self.table, 3, "day=2023-02-29", says="is no value of type date")
        scanned = self.objects("scan", self.table, "--with-key", "--where", "price < 0.001 and price <> -12.345")
        self.assertEqual([row["_key"] for row in scanned], [1], "a condition keeps all digits of its constants")

    def test_reads_and_writes_some_fields(self):
        for kind in ("transactional", "non-transactional"):
            with self.subTest(kind):
                table = f"{self.table}_{kind[:3]}"
                self.good("table", "create", table, "--kind", kind, "--field", "balance:int64", "--field", "note:text?",
                          "--field", "raw:blob?")
                self.good("put", table, 7, "balance=-5", "note=kept", "raw=x'00ff'")
                self.good("put", table, 8, "balance=1")
                self.assertEqual(self.objects("get", table, 8, 7, "--fields", "note,balance"),
                                 [{"_key": 8, "note": None, "balance": 1}, {"_key": 7, "note": "kept", "balance": -5}])
                self.assertEqual(self.good("get", table, "--fields", "raw", 7, "--csv"), "_key,raw\n7,x'00ff'\n")
                self.assertEqual(self.objects("put", table, 7, "raw=x'000102'", "balance=6")[0]["written"], "changed")
                self.assertEqual(self.objects("get", table, 7),
                                 [{"_key": 7, "balance": 6, "note": "kept", "raw": "000102"}])
                self.good("put", table, 7)
                self.assertEqual(self.objects("get", table, 7, "--fields", "balance"), [{"_key": 7, "balance": 6}])

    def test_accepts_the_largest_key(self):
        self.create("n:int16")
        key = 2**64 - 1
        self.good("put", self.table, key, "n=1")
        self.assertEqual(self.objects("get", self.table, key)[0]["_key"], key)

    def test_non_transactional_puts_change_the_version(self):
        self.create("n:int64", kind="non-transactional")
        self.good("put", self.table, 1, "n=1")
        first = self.objects("get", self.table, 1, "--with-version")[0]
        self.good("put", self.table, 1, "n=2")
        second = self.objects("get", self.table, 1, "--with-version")[0]
        self.assertEqual((first["n"], second["n"]), (1, 2))
        self.assertNotEqual(first["_version"], second["_version"])
        self.good("delete", self.table, 1)
        self.bad(1, "delete", self.table, 1, says="has no record 1")


class ScanTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.create("carrier:text?", "delay:int32?", "miles:float64")
        rows = "key,carrier,delay,miles\n1,UA,10,1.5\n2,UA,NA,2.5\n3,B6,70,0.5\n4,NA,-3,4\n5,\"a,b\",0,8\n"
        self.good("import", self.table, self.write("rows.csv", rows), "--key", "key")

    def test_selects_and_orders(self):
        rows = self.objects("scan", self.table, "--where", "delay > 0 or carrier is null", "--select",
                            "_key, delay as d", "--order-by", "d desc")
        self.assertEqual(rows, [{"_key": 3, "d": 70}, {"_key": 1, "d": 10}, {"_key": 4, "d": -3}])
        self.assertEqual(len(self.objects("scan", self.table, "--limit", 2)), 2)
        self.assertEqual(self.good("scan", self.table, "--csv", "--select", "carrier", "--order-by", "carrier"),
                         'carrier\nNA\nB6\nUA\nUA\n"a,b"\n')

    def test_orders_with_a_limit(self):
        self.assertEqual(self.objects("scan", self.table, "--select", "miles", "--order-by", "miles desc", "--limit", 2),
                         [{"miles": 8}, {"miles": 4}])

    def test_aggregates_by_group(self):
        rows = self.objects("scan", self.table, "--aggregate", "count(*) as n, sum(miles), avg(delay), min(carrier)",
                            "--group-by", "carrier", "--order-by", "n desc, carrier")
        self.assertEqual(rows[0], {"carrier": "UA", "n": 2, "sum(miles)": 4.0, "avg(delay)": 10.0, "min(carrier)": "UA"})
        self.assertEqual(rows[1], {"carrier": None, "n": 1, "sum(miles)": 4.0, "avg(delay)": -3.0, "min(carrier)": None})
        self.assertEqual(len(rows), 4)

    def test_selects_and_orders_groups(self):
        groups = ("scan", self.table, "--aggregate", "count(*), count(distinct carrier) as names, sum(miles) as m",
                  "--group-by", "carrier", "--having", "count(*) > 1 or m > 5", "--order-by", "m * 2 desc")
        expected = [{"carrier": "a,b", "count(*)": 1, "names": 1, "m": 8.0},
                    {"carrier": "UA", "count(*)": 2, "names": 1, "m": 4.0}]
        self.assertEqual(self.objects(*groups), expected)
        self.assertEqual(self.objects(*groups, "--limit", 1), expected[:1])

    def test_prints_a_table_without_json(self):
        text = self.good("scan", self.table, "--select", "carrier, delay", "--where", "miles > 5")
        self.assertEqual(text, "carrier  delay\n-------  -----\na,b          0\n")

    def test_explains_and_prints_statistics(self):
        plan = self.good("scan", self.table, "--explain", "--where", "miles > 5 and carrier like 'A%'", "--aggregate",
                         "count(*)")
        self.assertIn("first bytes by column", plan)
        self.assertIn("1 aggregate", plan)
        self.assertIn("scan:", self.objects("scan", self.table, "--explain")[0]["plan"])
        self.assertNotEqual(self.loam("scan", self.table, "--time-limit", "soon").returncode, 0)
        self.good("scan", self.table, "--time-limit", "1min", "--stats")
        result = self.loam("scan", self.table, "--json", "--statistics")
        statistics = json.loads(result.stderr)["statistics"]
        self.assertEqual(statistics["rows"], 5)
        self.assertGreaterEqual(statistics["records"], 5)


class OthersTest(ClusterTest):
    def test_stats_prints_server_statistics(self):
        self.create("n:int64")
        self.good("put", self.table, 1, "n=1")
        stats = self.objects("stats")[0]
        self.assertGreater(stats["manager"]["commits"], 0)
        self.assertEqual(len(stats["nodes"]), 1)
        self.assertTrue(stats["nodes"][0]["live"])
        tables = {table["name"]: table for table in stats["nodes"][0]["statistics"]["tables"]}
        self.assertEqual(tables[self.table]["keys"], 1)
        self.assertIn("commit manager", self.good("stats"))

    def test_doctor_reports_findings(self):
        result = loam("doctor", "--json", "--memory", "64MiB")
        topics = {finding["topic"]: finding for finding in map(json.loads, result.stdout.splitlines())}
        self.assertIn("huge pages", topics)
        self.assertEqual(topics["processor"]["result"], "ok", "this host runs the program")
        self.assertIn(result.returncode, (0, 6))
        used = int(self.dev.address.rsplit(":", 1)[1])
        findings = map(json.loads, loam("doctor", "--json", "--port", used).stdout.splitlines())
        self.assertEqual([f["result"] for f in findings if f["topic"] == f"port {used}"], ["warning"])
        self.assertEqual(loam("doctor", "--memory", "900TiB").returncode, 6)

    def test_ping_measures_every_server(self):
        results = self.objects("ping", "--count", 20, "--bytes", 5000)
        self.assertEqual(results[0]["address"], self.dev.address)
        self.assertEqual(len(results), 2, "the commit manager and its storage node")
        for result in results:
            self.assertEqual((result["requests"], result["replies"], result["bytes"]), (20, 20, 5000))
            self.assertLessEqual(0 < result["min_ns"] <= result["median_ns"] <= result["p99_ns"], result["max_ns"])
        self.assertRegex(self.good("ping", self.dev.address, "--count", 3, "--bytes", 0), "3 of 3 answered: .* median")
        with cluster.refusing_port() as port:
            result = loam("ping", f"127.0.0.1:{port}", self.dev.address, "--count", 1)
        self.assertEqual(result.returncode, 3)
        self.assertIn("Connection refused", result.stderr)
        self.assertIn("1 of 1 answered", result.stdout, "the other address is measured nevertheless")
        result = loam("ping", "tcp://" + self.dev.config["admin_address"], "--timeout", 0.5)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertEqual(loam("ping", "nonsense://here").returncode, 2)

    def test_slow_shows_latencies_and_slow_operations_of_all_servers(self):
        self.create("value:int64")
        self.good("put", self.table, 1, "value=1")
        reply = json.loads(self.good("slow", "--json"))
        kinds = {(one["server"], one["kind"]): one for one in reply["kinds"]}
        self.assertEqual(reply["errors"], [])
        for server, kind in (("manager", "begin"), ("manager", "complete"), ("node 1", "write")):
            one = kinds[server, kind]
            self.assertGreater(one["requests"], 0, one)
            self.assertLessEqual(one["p50_ns"], one["p999_ns"])
        totals = [one["total_ns"] for one in reply["operations"]]
        self.assertEqual(totals, sorted(totals, reverse=True))
        for one in reply["operations"]:
            self.assertEqual(one["total_ns"], sum(stage["ns"] for stage in one["stages"]))
            self.assertEqual(one["cause"], max(one["stages"], key=lambda stage: stage["ns"])["stage"])
        self.assertIn("99.9 % within", self.good("slow"))
        for line in self.good("slow", "--follow", "0.1", "--count", 2, "--json").splitlines():
            self.assertIn(json.loads(line)["server"], ("manager", "node 1"))
        self.assertEqual(loam("slow", "--count", 2).returncode, 2, "--count needs --follow")

    def test_every_subcommand_has_help(self):
        self.assertRegex(json.loads(loam("version", "--json").stdout)["version"], r"^\d+\.\d+\.\d+$")
        for path in ([], ["dev"], ["table"], ["table", "create"], ["table", "list"], ["table", "describe"],
                     ["table", "drop"], ["table", "rename"], ["table", "add-field"], ["index"], ["index", "create"], ["index", "list"],
                     ["index", "drop"], ["put"], ["get"], ["delete"], ["import"], ["scan"], ["stats"], ["ping"], ["doctor"],
                     ["demo"], ["completion"], ["version"], ["cluster"], ["cluster", "up"], ["cluster", "down"],
                     ["cluster", "status"], ["cluster", "start"], ["cluster", "stop"], ["status"], ["node"],
                     ["node", "list"], ["node", "accept-loss"], ["log"], ["log", "inspect"], ["sessions"], ["session"],
                     ["session", "end"], ["transactions"], ["queries"], ["query"], ["query", "cancel"], ["slow"], ["support-bundle"]):
            result = loam(*path, "--help")
            self.assertEqual(result.returncode, 0, path)
            self.assertIn("Usage: loam", result.stdout, path)
            if path and path not in (["table"], ["index"], ["completion"], ["cluster"], ["node"], ["log"], ["session"],
                                     ["query"]):
                self.assertIn("--json", result.stdout, path)

    def test_completion_offers_every_subcommand(self):
        script = loam("completion", "bash").stdout
        complete_words = script + '\nCOMP_WORDS=(loam "$1" "$2"); COMP_CWORD=$3; _loam; echo "${COMPREPLY[*]}"'
        offered = subprocess.run(["bash", "-c", complete_words, "-", "", "", "1"], capture_output=True, text=True, check=True)
        for name in ("dev", "cluster", "status", "node", "log", "table", "index", "put", "get", "delete", "import", "scan",
                     "stats", "slow", "sessions", "session", "transactions", "queries", "query", "ping", "doctor",
                     "support-bundle", "demo"):
            self.assertIn(name, offered.stdout.split())
        self.assertNotIn("demo-client", offered.stdout)
        for typed, option in (("--gr", "--group-by"), ("--pre", "--prefix")):
            offered = subprocess.run(["bash", "-c", complete_words, "-", "scan", typed, "2"], capture_output=True, text=True,
                                     check=True)
            self.assertEqual(offered.stdout.strip(), option)


class DevTest(unittest.TestCase):
    def test_sigint_and_sigterm_end_it(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with Dev() as dev:
                dev.process.send_signal(number)
                self.assertEqual(dev.process.wait(cluster.DEADLINE_S), 0)
                dev.process.stdout.close()

    def test_prints_the_effective_configuration(self):
        config = json.loads(loam("dev", "--print-config", "--json", "--memory", "2GiB", "--page-size", "4MiB",
                                 "--listen", "tcp://127.0.0.1:1234").stdout)
        self.assertEqual(config["memory_bytes"], 2 << 30)
        self.assertEqual(config["page_bytes"], 4 << 20)
        self.assertEqual(config["listen"], "tcp://127.0.0.1:1234")
        self.assertIn("listen = \"tcp://127.0.0.1:7400\"", loam("dev", "--print-config").stdout)


class DemoTest(unittest.TestCase):
    def test_all_checks_pass(self):
        result = loam("demo", "--duration", 1, "--accounts", 1000, "--memory", "128MiB", "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        found = json.loads(result.stdout)
        self.assertEqual(found["import"]["rows"], 27_004)
        self.assertTrue(all(question["right"] for question in found["questions"]))
        self.assertEqual(len(found["questions"]), 5)
        self.assertTrue(found["all_at_once"]["right"] and found["checks_hold"])
        transfers = found["transfers"]
        for what in ("transactions", "scans", "kills", "rolled_back", "paused_fenced", "manager_back_ns"):
            self.assertGreater(transfers[what], 0, what)
        self.assertEqual(set(transfers["latencies"]),
                         {"calm", "client_killed", "client_paused", "manager_restarted", "afterwards"})

    def test_finds_the_sample_through_loam_data(self):
        result = loam("demo", "--flights", "/nowhere/flights.csv")
        self.assertEqual(result.returncode, 4)
        self.assertIn("/nowhere/flights.csv cannot be opened: No such file or directory", result.stderr)
        result = loam("demo", "--calm", "--duration", 1, "--accounts", 100, "--memory", "128MiB",
                      env={"LOAM_DATA": str(SAMPLE.parent)})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("Every answer is what the file says, every sum is exact, and every transfer", result.stdout)


if __name__ == "__main__":
    cluster.main()
