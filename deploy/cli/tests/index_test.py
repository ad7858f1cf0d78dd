"""Tests indexes on the command line: they are created, listed, dropped and read by get and scan, and are not tables."""

import json
import os
import pathlib
import pty
import re
import signal
import subprocess

import cluster
from cluster import ClusterTest


class IndexCase(ClusterTest):
    """Each test has one table and one index, named after the test."""

    def setUp(self):
        super().setUp()
        self.index = self.table + ".index"

    def make(self, fields, *options):
        self.good("index", "create", self.index, "--table", self.table, "--fields", fields, *options)

    def load(self, text):
        """Imports the table from CSV. The column `key` is the record key, and a field too."""
        self.good("import", self.table, self.write("rows.csv", text), "--key", "key")

    def keys(self, *arguments):
        return [record["_key"] for record in self.objects(*arguments)]


class DefinitionTest(IndexCase):
    def listed(self):
        return self.objects("index", "list", "--table", self.table)

    def test_creates_lists_describes_and_drops_an_index(self):
        self.create("carrier:text?", "delay:int32", "miles:float64")
        self.assertEqual(self.good("index", "list", "--table", self.table),
                         "no indexes yet; `loam index create --help` says how to create one\n")
        expected = {"name": self.index, "table": self.table, "fields": "carrier,delay:desc", "unique": "no",
                    "state": "ready"}
        command = ("index", "create", self.index, "--table", self.table, "--fields", "carrier,delay:desc")
        self.assertEqual(self.objects(*command), [expected])
        self.assertEqual(self.good(*command), f"index {self.index} of table {self.table} is ready: carrier,delay:desc\n",
                         "creating the same index again succeeds")
        other = self.table + ".other"
        self.good("index", "create", other, "--table", self.table, "--fields", "miles", "--unique")
        self.assertEqual(self.listed(), [expected, {"name": other, "table": self.table, "fields": "miles",
                                                    "unique": "yes", "state": "ready"}])
        self.assertIn(self.index, [index["name"] for index in self.objects("index", "list")])
        self.assertIn(f"\nindex {self.index}: carrier,delay:desc\nunique index {other}: miles\n",
                      self.good("table", "describe", self.table))
        self.assertEqual(len(self.objects("table", "describe", self.table)), 3, "--json prints only the fields")
        self.assertEqual(self.objects("index", "drop", self.index, "--yes"), [{"dropped": self.index}])
        self.assertEqual([index["name"] for index in self.listed()], [other])
        self.bad(1, "index", "drop", self.index, "--yes", says=f"there is no index {self.index}")
        self.good("table", "drop", self.table, "--yes")
        self.assertNotIn(other, self.good("index", "list"), "dropping a table drops its indexes")

    def test_drop_asks_for_confirmation(self):
        self.create("n:int64")
        self.make("n")
        self.bad(2, "index", "drop", self.index, stdin="", says="use --yes to drop it")
        self.assertEqual(len(self.listed()), 1)

    def test_invalid_definitions_are_refused(self):
        self.create("n:int64", "t:text?")

        def refuse(code, says, fields="n", table=self.table, name=self.index):
            self.bad(code, "index", "create", name, "--table", table, "--fields", fields, says=says)

        refuse(2, "--fields: no field is named 'size'; the fields are n, t", fields="n,size:desc")
        refuse(2, "--fields: field n is named twice", fields="n,n:desc")
        refuse(2, "no field is named 'n:down'", fields="n:down")
        refuse(1, "nowhere", table="nowhere")
        refuse(1, f"there is a table {self.table}; choose another name", name=self.table)
        refuse(1, "loam.", name="loam.mine")
        plain = self.table + ".plain"
        self.good("table", "create", plain, "--kind", "non-transactional", "--field", "n:int64")
        refuse(1, "non-transactional", table=plain)
        self.assertEqual(self.listed(), [])
        self.make("n")
        refuse(1, f"there is an index {self.index} already, created by\n  loam index create {self.index} --table "
                  f"{self.table} --fields n\n`loam index drop {self.index}`", fields="n:desc")

    def test_duplicate_values_prevent_a_unique_index(self):
        self.load("key,n\n1,5\n2,6\n3,5\n")
        result = self.bad(1, "index", "create", self.index, "--table", self.table, "--fields", "n", "--unique")
        self.assertRegex(result.stderr,
                         "record [13] and record [13] have the same value\n  The index was removed. Change the")
        self.assertEqual(self.listed(), [])
        self.good("put", self.table, 3, "n=7")
        self.make("n", "--unique")

    def test_index_is_not_a_table(self):
        self.create("n:int64")
        self.make("n")
        self.assertNotIn(self.index, self.good("table", "list"))
        path = self.write("a.csv", "n\n1\n")
        for arguments in (["get", self.index, 1], ["put", self.index, 1, "n=1"], ["delete", self.index, 1],
                          ["scan", self.index], ["import", self.index, path], ["table", "describe", self.index],
                          ["table", "drop", self.index, "--yes"], ["index", "list", "--table", self.index],
                          ["table", "create", self.index, "--field", "n:int64"]):
            self.bad(1, *arguments, says=f"{self.index} is an index of table {self.table}")
        self.assertEqual(len(self.listed()), 1)
        tables = self.objects("stats")[0]["nodes"][0]["statistics"]["tables"]
        of = {table["name"]: table["index_of"] for table in tables}
        self.assertEqual((of[self.table], of[self.index]), ("", self.table))


class UnfinishedTest(IndexCase):
    """The creation of an index waits for open transactions. If it is interrupted, the same command continues it."""

    def setUp(self):
        super().setUp()
        self.create("n:int64")
        self.good("put", self.table, 1, "n=1")
        self.command = ["index", "create", self.index, "--table", self.table, "--fields", "n:desc"]

    def while_waiting(self, act, **pipes):
        """Starts the creation of an index while a transaction is open, and calls act(process) while the creation waits.
        A paused process holds the transaction open, but only until its lease ends. So act() returns whether it acted in
        time, and if it did not, the attempt is repeated."""
        for attempt in range(100):
            resume_file = pathlib.Path(self.directory.name) / f"resume_{attempt}"
            place = "client.commit.begun"
            holder = subprocess.Popen(
                [cluster.PROGRAM, "put", self.table, "2", "n=2", "--connect", self.dev.address], text=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                env={**os.environ, "LOAM_PAUSE": f"{place}=block:{resume_file}"})
            self.assertEqual(holder.stderr.readline(), f"loam: paused at {place}\n")
            process = subprocess.Popen([cluster.PROGRAM, *self.command, "--connect", self.dev.address], **pipes)
            cluster.wait_until(lambda: self.loam("index", "list", "--table", self.table, "--json").stdout,
                               "the index is listed")
            done = act(process)
            resume_file.touch()
            _, errors = holder.communicate(timeout=cluster.DEADLINE_S)
            self.assertEqual(holder.returncode, 0, errors)
            process.communicate(timeout=cluster.DEADLINE_S)
            if done:
                return
            self.good("index", "drop", self.index, "--yes")
        raise AssertionError("act() was too late in every attempt")

    def test_interrupted_build_continues(self):
        errors = []

        def interrupt(process):
            process.send_signal(signal.SIGINT)
            errors.append(process.communicate(timeout=cluster.DEADLINE_S)[1])
            return process.returncode == 130

        self.while_waiting(interrupt, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertIn(f"the unfinished index {self.index} stays: the same command continues the build", errors[-1])
        self.assertEqual(self.objects("index", "list", "--table", self.table)[0]["state"], "building")
        self.assertIn(f"index {self.index}: n:desc (building)", self.good("table", "describe", self.table))
        for arguments in (["get", self.table, "--index", self.index, 2], ["scan", self.table, "--index", self.index]):
            result = self.bad(1, *arguments, says=f"index {self.index} is still being built")
        command = re.search(r"\n  loam (index create .*)", result.stderr).group(1).split()
        self.assertEqual(command, self.command)
        self.good(*command)
        self.assertEqual(self.keys("scan", self.table, "--index", self.index, "--with-key"), [2, 1])

    def test_killed_build_can_be_dropped(self):
        def kill(process):
            process.kill()
            process.wait()
            return self.objects("index", "list", "--table", self.table)[0]["state"] == "building"

        self.while_waiting(kill)
        self.good("put", self.table, 3, "n=3")
        self.good("index", "drop", self.index, "--yes")
        self.good(*self.command)
        self.assertEqual(self.keys("scan", self.table, "--index", self.index, "--with-key"), [3, 2, 1])

    def test_shows_progress_on_a_terminal(self):
        leader, follower = pty.openpty()
        shown = [b""]

        def watch(process):
            while not re.search(rb"\r\x1b\[K[\d,]+ records", shown[0]):
                if process.poll() is not None:
                    return False
                if cluster.select.select([leader], [], [], 0.01)[0]:  # poll interval
                    shown[0] += os.read(leader, 4096)
            return True

        self.while_waiting(watch, stdout=subprocess.DEVNULL, stderr=follower)
        os.close(follower)
        os.close(leader)
        self.assertEqual(self.objects("index", "list", "--table", self.table)[0]["state"], "ready")


class GetTest(IndexCase):
    def setUp(self):
        super().setUp()
        self.load('key,carrier,delay,raw\n1,UA,10,a\n2,UA,NA,b\n3,B6,-70,c\n4,"",-3,d\n5,"a,b",10,e\n6,UA,10,f\n7,NA,5,g\n')

    def test_gets_by_some_or_all_fields(self):
        self.make("carrier,delay:desc")
        by_index = ("get", self.table, "--index", self.index)
        self.assertEqual(self.objects(*by_index, "UA", 10, "--fields", "raw,delay"),
                         [{"_key": 1, "raw": "a", "delay": 10}, {"_key": 6, "raw": "f", "delay": 10}])
        self.assertEqual(self.keys(*by_index, "UA"), [1, 6, 2], "NULL comes last in descending order")
        self.assertEqual(self.keys(*by_index, "UA", "--null", "delay"), [2])
        self.assertEqual(self.keys(*by_index, "--null", "carrier"), [7])
        self.assertEqual(self.keys(*by_index, "B6", -70), [3])
        self.assertEqual(self.keys(*by_index, ""), [4], "the empty text")
        self.assertEqual(self.good(*by_index, "a,b", "--csv"), '_key,key,carrier,delay,raw\n5,5,"a,b",10,e\n')
        self.assertIn("_version", self.objects(*by_index, "B6", "--with-version")[0])
        self.assertIn("carrier", self.good(*by_index, "B6"))
        self.good("put", self.table, 3, "delay=11", "carrier=UA")
        self.good("delete", self.table, 6)
        self.assertEqual(self.keys(*by_index, "UA"), [3, 1, 2])

    def test_wrong_arguments_are_refused(self):
        self.make("carrier,delay")
        by_index = ("get", self.table, "--index", self.index)
        self.bad(1, *by_index, "XX", says=f"table {self.table} has no record with these values in index {self.index}")
        self.bad(4, *by_index, "UA", "soon", says="field delay: 'soon' is no value of type int32")
        self.bad(4, *by_index, "UA", 1, 2, says=f"index {self.index} has 2 fields (carrier,delay), not 3")
        self.bad(4, *by_index, says="give values of the index's first fields: carrier,delay")
        self.bad(4, *by_index, "--null", "delay", says="the index's first fields, each once: carrier,delay")
        self.bad(2, "get", self.table, says="give the keys of the records, or --index")
        self.bad(2, "get", self.table, 1, "--null", "delay", says="--null requires --index")
        self.bad(1, "get", self.table, "--index", "nothing", 1,
                 says=f"there is no index nothing; table {self.table} has {self.index}")
        other = self.table + ".other"
        self.good("table", "create", other, "--field", "n:int64")
        self.bad(1, "get", other, "--index", self.index, 1, says=f"index {self.index} is of table {self.table}, not of")
        self.bad(1, "get", other, "--index", "nothing", 1,
                 says=f"table {other} has none: `loam index create --help` says how")

    def test_unique_index_refuses_duplicates(self):
        self.make("raw", "--unique")
        self.assertEqual(self.keys("get", self.table, "--index", self.index, "c"), [3])
        self.bad(1, "put", self.table, 9, "key=9", "raw=c", says=self.index)
        self.bad(1, "get", self.table, 9, says="has no record 9")
        path = self.write("more.csv", "key,carrier,delay,raw\n10,AA,1,x\n11,AA,1,c\n12,AA,1,y\n")
        result = self.loam("import", self.table, path, "--key", "key", "--on-error", "skip", "--json")
        self.assertEqual(result.returncode, 5, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["imported"], report["lines_remaining"]), (2, "3"))
        self.assertIn(self.index, report["bad_rows"][0]["message"])
        self.assertEqual(self.keys("get", self.table, "--index", self.index, "y"), [12])


class ScanTest(IndexCase):
    def test_scans_ranges(self):
        self.load('key,carrier,delay\n1,UA,10\n2,UA,NA\n3,B6,70\n4,NA,-3\n5,"a,b",0\n6,UA,20\n7,B6,5\n')
        self.make("carrier,delay:desc")
        by_index = ("scan", self.table, "--index", self.index, "--with-key")
        for expected, arguments in (
                ([4, 3, 7, 6, 1, 2, 5], []),
                ([5, 2, 1, 6, 7, 3, 4], ["--reverse"]),
                ([6, 1, 2, 5], ["--from", "C"]),
                ([1, 2, 5], ["--from", "UA,10"]),
                ([4, 3, 7, 6, 1], ["--to", "UA,10"]),
                ([3, 7], ["--from", "B6", "--to", "B6"]),
                ([7, 3, 4], ["--to", "B6", "--reverse"]),
                ([2, 1], ["--to", "UA,", "--reverse", "--limit", 2]),
                ([5], ["--from", '"a,b"']),
                ([4], ["--to", ""]),
                ([4, 3], ["--from", ",-3", "--limit", 2]),
                ([], ["--from", "b"]),
                ([], ["--from", "b", "--to", "a"])):
            self.assertEqual(self.keys(*by_index, *arguments), expected, arguments)

    def test_scans_prefixes(self):
        self.load('key,line,name\n1,7,Ad\n2,7,Adam\n3,7,Äda\n4,7,NA\n5,8,Ada\n6,NA,Ada\n7,7,"a,b"\n8,7,""\n9,7,Ae\n')
        self.make("line,name:desc")
        by_index = ("scan", self.table, "--index", self.index, "--with-key")
        for expected, arguments in (
                ([2, 1], ["--prefix", "7,Ad"]),
                ([1, 2], ["--prefix", "7,Ad", "--reverse"]),
                ([2], ["--prefix", "7,Ad", "--limit", 1]),
                ([3], ["--prefix", "7,Ä"]),
                ([7], ["--prefix", '7,"a,"']),
                ([3, 7, 9, 2, 1, 8], ["--prefix", "7,"]),
                ([5], ["--prefix", "8,A"]),
                ([6], ["--prefix", ",A"]),
                ([], ["--prefix", "7,Adams"])):
            self.assertEqual(self.keys(*by_index, *arguments), expected, arguments)
        other = self.table + ".other"
        self.good("index", "create", other, "--table", self.table, "--fields", "name")
        by_name = ("scan", self.table, "--index", other, "--with-key")
        self.assertEqual(self.keys(*by_name, "--prefix", "Ada"), [5, 6, 2])
        self.assertEqual(self.keys(*by_name, "--prefix", ""), [8, 1, 5, 6, 2, 9, 7, 3], "all that are not NULL")

    def test_wrong_prefixes_are_refused(self):
        self.load("key,name,delay\n1,Ada,1\n")
        self.make("name,delay")
        by_index = ("scan", self.table, "--index", self.index)
        self.bad(4, *by_index, "--prefix", "Ada,1",
                 says="--prefix: field delay is of type int32; only a text or blob has a beginning (index")
        self.bad(4, *by_index, "--prefix", "Ada,1,2", says=f"--prefix: index {self.index} has 2 fields (name,delay)")
        self.bad(2, "scan", self.table, "--prefix", "A", says="--prefix requires --index")
        for other in ("--from", "--to"):
            self.bad(2, *by_index, "--prefix", "A", other, "B", says=f"{other} excludes --prefix")

    def test_prints_every_format(self):
        self.load("key,carrier,delay\n1,UA,10\n2,B6,NA\n")
        self.make("carrier")
        by_index = ("scan", self.table, "--index", self.index)
        self.assertEqual(self.objects(*by_index), [{"key": 2, "carrier": "B6", "delay": None},
                                                   {"key": 1, "carrier": "UA", "delay": 10}])
        self.assertEqual(self.good(*by_index, "--csv"), "key,carrier,delay\n2,B6,\n1,UA,10\n")
        self.assertEqual(self.good(*by_index, "--select", "carrier, delay as late"),
                         "carrier  late\n-------  ----\nB6       NULL\nUA         10\n")
        self.assertEqual(self.objects(*by_index, "--select", "_key, carrier")[1], {"_key": 1, "carrier": "UA"})

    def test_scans_several_pages(self):
        """The scan reads more records than a request returns. Most of them have the same value."""
        rows = [(i, 0 if i % 10 else i) for i in range(1, 12_001)]
        self.load("key,n\n" + "".join(f"{key},{n}\n" for key, n in rows))
        self.make("n")
        by_index = ("scan", self.table, "--index", self.index, "--csv", "--select", "key,n")
        expected = [f"{key},{n}" for key, n in sorted(rows, key=lambda row: (row[1], row[0]))]
        self.assertEqual(self.good(*by_index).splitlines()[1:], expected)
        self.assertEqual(self.good(*by_index, "--reverse").splitlines()[1:], expected[::-1])
        for limit in (999, 1_000, 1_001, 10_799, 10_800, 10_801, 11_999, 12_000, 12_001):
            self.assertEqual(self.good(*by_index, "--limit", limit).splitlines()[1:], expected[:limit], limit)
        self.assertEqual(len(self.keys("get", self.table, "--index", self.index, 0)), 10_800)

    def test_scans_several_pages_of_a_prefix(self):
        """The next page begins after the last record of a page. The other end of the range does not change."""
        rows = [(i, ("a", "b", "bc", "c")[i % 4]) for i in range(1, 6_001)]
        self.load("key,name\n" + "".join(f"{key},{name}\n" for key, name in rows))
        self.make("name")
        by_index = ("scan", self.table, "--index", self.index, "--prefix", "b", "--csv", "--select", "key,name")
        expected = [f"{key},{name}" for key, name in sorted(rows, key=lambda row: (row[1], row[0])) if name[0] == "b"]
        self.assertEqual(self.good(*by_index).splitlines()[1:], expected)
        self.assertEqual(self.good(*by_index, "--reverse").splitlines()[1:], expected[::-1])
        self.assertEqual(self.good(*by_index, "--limit", 2_001).splitlines()[1:], expected[:2_001])

    def test_conflicting_options_are_refused(self):
        self.create("n:int64")
        self.make("n")
        for option in (["--where", "n = 1"], ["--aggregate", "count(*)"], ["--group-by", "n"], ["--order-by", "n"],
                       ["--time-limit", "1s"], ["--stats"], ["--explain"]):
            self.bad(2, "scan", self.table, "--index", self.index, *option,
                     says=f"{option[0]} cannot be combined with --index, which reads a part of an index")
        for option in (["--from", 1], ["--to", 1], ["--reverse"]):
            self.bad(2, "scan", self.table, *option, says=f"{option[0]} requires --index")
        self.bad(4, "scan", self.table, "--index", self.index, "--from", "x", says="--from: field n: 'x' is no value")
        self.bad(4, "scan", self.table, "--index", self.index, "--to", "1,2", says="--to: index")
        self.bad(4, "scan", self.table, "--index", self.index, "--to", "", says="--to: field n is never NULL")
        self.bad(1, "scan", self.table, "--index", "nothing", says="there is no index nothing")
        self.assertEqual(self.good("scan", self.table, "--index", self.index), "n\n-\n", "an empty table")


if __name__ == "__main__":
    cluster.main()
