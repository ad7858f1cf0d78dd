"""Tests `loam` with bad input: each kind has its own message and exit code, loses no data, and disturbs no other
client."""

import json
import os
import pathlib
import pty
import re
import time
import unittest

import cluster
from cluster import ClusterTest, Dev, loam

DOCS = pathlib.Path(__file__).resolve().parents[3] / "docs" / "cli.md"


class UsageTest(ClusterTest):
    def test_wrong_command_lines_are_refused(self):
        self.bad(2, says="A subcommand is required")
        self.bad(2, "fly", says="`loam --help` shows what there is")
        self.bad(2, "scan", says="table is required")
        self.bad(2, "scan", "t", "--nonsense", says="`loam scan --help` shows what there is")
        self.bad(2, "table", "create", "t", "--field", "a:int", says="no type is named 'int'")
        self.bad(2, "table", "create", "t", "--field", "a", says="write name:type")
        self.bad(2, "table", "create", "t", "--field", "a:text", "--kind", "odd", says="--kind")
        self.bad(2, "import", "t", "f", "--delimiter", "ab", says="--delimiter is one character")
        self.bad(2, "import", "t", "f", "--lines", "5-2", says="'5-2' names no lines")
        self.bad(2, "dev", "--memory", "lots", says="--memory: expected a size such as 64MiB")
        for value in ("-1", "18446744073709551616", "", "010"):
            self.bad(2, "scan", "t", "--limit", value,
                     says=f"--limit: expected a whole number from 0 to 18446744073709551615, not '{value}'")
        self.bad(2, "dev", "--spin-us", "-1", says="--spin-us: expected a whole number from 0 to 1000000, not '-1'")
        self.bad(2, "scan", "t", "--connect=", says="--connect: the value is empty")
        self.bad(2, "cluster", "down", "--dir", "", says="--dir: the value is empty")

    def test_json_errors_have_code_and_message(self):
        result = self.bad(1, "get", "nowhere", 1, "--json")
        error = json.loads(result.stderr)["error"]
        self.assertEqual(error["exit_code"], 1)
        self.assertIn("nowhere", error["message"])

    def test_json_mode_prints_no_warnings(self):
        """With --json, stderr has nothing but JSON. The client library does not warn there that its thread stalled."""
        self.create("a:int32")
        resume_file = pathlib.Path(self.directory.name) / "resume"
        place = "client.commit.begun"
        process = cluster.subprocess.Popen(
            [cluster.PROGRAM, "put", self.table, "1", "a=1", "--json", "--connect", self.dev.address], text=True,
            stdout=cluster.subprocess.DEVNULL, stderr=cluster.subprocess.PIPE,
            env={**os.environ, "LOAM_PAUSE": f"{place}=block:{resume_file}"})
        self.assertEqual(process.stderr.readline(), f"loam: paused at {place}\n")
        held_until = time.monotonic() + 0.05  # longer than the stall of which the client library warns
        cluster.wait_until(lambda: time.monotonic() > held_until, "the stall is over")
        resume_file.touch()
        _, errors = process.communicate(timeout=cluster.DEADLINE_S)
        self.assertEqual((process.returncode, errors), (0, ""))

    def test_wrong_queries_are_refused(self):
        self.create("a:int32?", "t:text?")
        self.bad(2, "scan", self.table, "--where", "a > > 1",
                 says="--where, column 5: expected a value, found '>'\n  a > > 1\n      ^")
        self.bad(2, "scan", self.table, "--where", "b = 1", says="--where, column 1")
        self.bad(2, "scan", self.table, "--where", "a = 'x'", says="--where, column 3: = does not take (int32, text): 'x' is no")
        self.bad(2, "scan", self.table, "--aggregate", "sum(t)", says="sum is for numbers, and t is text")
        self.bad(2, "scan", self.table, "--select", "a", "--aggregate", "count(*)", says="choose one")


class FieldsTest(ClusterTest):
    def test_unknown_fields_are_refused(self):
        self.create("balance:int64", "note:text?")
        self.good("put", self.table, 1, "balance=1")
        self.bad(2, "get", self.table, 1, "--fields", "balance,size",
                 says=f"table {self.table}: no field is named 'size'; the fields are balance, note")
        self.bad(2, "get", self.table, 1, "--fields", "note,note", says="'note' is named twice")
        self.bad(4, "put", self.table, 1, "size=3", says="no field is named 'size'; the fields are balance, note")


class TableErrorsTest(ClusterTest):
    def test_unknown_table_is_an_error(self):
        path = self.write("a.csv", "a\n1\n")
        for arguments in (["get", "nowhere", 1], ["put", "nowhere", 1, "a=1"], ["delete", "nowhere", 1],
                          ["scan", "nowhere"], ["table", "describe", "nowhere"], ["table", "drop", "nowhere", "--yes"],
                          ["table", "rename", "nowhere", "somewhere"],
                          ["table", "add-field", "nowhere", "a:int32?"]):
            self.bad(1, *arguments, says="nowhere")
        self.assertEqual(self.loam("import", "made_by_import", path).returncode, 0)

    def test_dropped_table_is_gone(self):
        self.create("a:int32")
        self.good("put", self.table, 1, "a=1")
        self.good("table", "drop", self.table, "--yes")
        self.bad(1, "scan", self.table, says=self.table)
        self.bad(1, "get", self.table, 1, says=self.table)
        self.create("a:int32")
        self.assertEqual(self.count(), 0, "a new table of that name is empty")

    def test_incompatible_schema_is_refused(self):
        self.create("a:int32")
        self.good("put", self.table, 1, "a=1")
        self.bad(1, "table", "create", self.table, "--field", "a:int64", says=self.table)
        self.bad(1, "table", "create", self.table, "--field", "a:int32", "--kind", "non-transactional", says=self.table)
        path = self.write("a.csv", "a\n1\n")
        self.bad(1, "import", self.table, path, "--schema", "a:text", says=self.table)
        self.assertEqual(self.objects("get", self.table, 1), [{"_key": 1, "a": 1}])

    def test_reserved_and_long_names_are_refused(self):
        self.bad(1, "table", "create", "loam.mine", "--field", "a:int32", says="loam.")
        self.bad(1, "table", "create", "x" * 200, "--field", "a:int32")


class RecordErrorsTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.create("n:int16", "t:text?")
        self.good("put", self.table, 1, "n=1", "t=kept")

    def tearDown(self):
        self.assertEqual(self.objects("get", self.table, 1), [{"_key": 1, "n": 1, "t": "kept"}], "it is unchanged")
        self.assertEqual(self.count(), 1)

    def test_wrong_type_is_refused(self):
        self.bad(4, "put", self.table, 2, "n=abc", says="field n: 'abc' is no value of type int16")
        self.bad(4, "put", self.table, 2, "n=40000", says="field n: ")
        for value in ("1.5", "+-5", "++5", "--5", ""):
            self.bad(4, "put", self.table, 2, f"n={value}", says=f"field n: '{value}' is no value of type int16")

    def test_null_in_a_not_null_field_is_refused(self):
        self.bad(4, "put", self.table, 2, "t=x", says="field n cannot be NULL and is not given")
        self.bad(4, "put", self.table, 1, "--null", "n", says="field n cannot be NULL")

    def test_unknown_and_repeated_fields_are_refused(self):
        self.bad(4, "put", self.table, 2, "m=1", says="m")
        self.bad(4, "put", self.table, 2, "n=1", "n=2", says="field n is assigned twice")
        self.bad(2, "put", self.table, 2, "n", says="'n' is no assignment: write field=value")

    def test_duplicate_key_is_refused(self):
        self.bad(1, "put", self.table, 1, "n=2", "--new", says=f"table {self.table} has a record with key 1 already")

    def test_missing_key_is_an_error(self):
        self.bad(1, "put", self.table, 2, "n=2", "--existing", says="2")
        self.bad(1, "get", self.table, 2, says=f"table {self.table} has no record 2")
        self.bad(1, "delete", self.table, 2, says=f"table {self.table} has no record 2")
        result = self.bad(1, "get", self.table, 1, 2, "--json", says="has no record 2")
        self.assertEqual(json.loads(result.stdout)["_key"], 1, "existing records are shown")

    def test_invalid_keys_are_refused(self):
        for key in ("-1", "", "010", "+1", "x", "18446744073709551616", "1.0"):
            self.bad(4, "get", self.table, "--", key, says="is no record key")

    def test_record_over_the_limit_is_refused(self):
        path = self.write("big.csv", "key,n,t\n2,1," + "x" * (1 << 20) + "\n")
        result = self.bad(4, "import", self.table, path, "--key", "key")
        self.assertRegex(result.stderr, r"big\.csv: line 2: .*1048576")
        self.bad(4, "put", self.table, 3, "n=1", "t=" + "y" * 100_000, "--null", "t", says="assigned twice")


class ImportErrorsTest(ClusterTest):
    def test_unreadable_files_are_refused(self):
        self.bad(4, "import", self.table, "/nowhere.csv", says="/nowhere.csv cannot be opened: No such file or directory")
        self.bad(4, "import", self.table, self.write("e.csv", ""), says="line 1 is empty")
        self.bad(4, "import", self.table, self.write("e.csv", "a,a\n1,2\n"),
                 says="line 1, column 3 (a): the header names this column twice")
        self.bad(4, "import", self.table, self.write("e.csv", "a\n1\n"), "--key", "k", says="there is no column k")

    def test_import_stops_at_a_bad_row_and_resumes(self):
        rows = "".join(f"{i},{i * 2}\n" for i in range(1, 3001))
        text = "key,n\n" + rows.replace("\n2000,4000\n", "\n2000,oops\n")
        path = self.write("rows.csv", text)
        self.create("key:int64", "n:int32")
        result = self.bad(4, "import", self.table, path, "--key", "key", "--batch", 100,
                          says="line 2001, column 6 (n): 'oops' is not int32")
        self.assertIn("imported lines: 2-2000\n", result.stderr)
        self.assertIn("not imported: 2001-\n", result.stderr)
        self.assertEqual(self.count(), 1999)
        command = re.search(r"run: (.*)", result.stderr).group(1)
        self.write("rows.csv", text.replace("oops", "4000"))
        cluster.subprocess.run(["sh", "-c", command], check=True, timeout=cluster.DEADLINE_S, capture_output=True)
        self.assertEqual(self.objects("scan", self.table, "--aggregate", "count(*) as n, sum(n) as s")[0],
                         {"n": 3000, "s": 3000 * 3001})

    def test_import_skips_bad_rows(self):
        path = self.write("rows.csv", "key,n\n1,1\n2,x\n3,3\n4\n5,5\n6,\"6\"7\n8,8\n")
        self.create("key:int64", "n:int32")
        result = self.loam("import", self.table, path, "--key", "key", "--on-error", "skip", "--json")
        self.assertEqual(result.returncode, 5, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["imported"], report["bad"], report["finished"]), (4, 3, True))
        self.assertEqual(report["lines_imported"], "2, 4, 6, 8")
        self.assertEqual(report["lines_remaining"], "3, 5, 7")
        self.assertEqual([row["message"] for row in report["bad_rows"]],
                         ["line 3, column 3 (n): 'x' is not int32", "line 5, column 1: 1 field where the header has 2",
                          "line 7, column 6: text after a closing quote; inside quotes, write a quote twice"])
        self.assertEqual(self.count(), 4)

    def test_import_skips_only_rows_with_duplicate_keys(self):
        rows = "".join(f"{i},{i}\n" for i in range(1, 1001))
        path = self.write("rows.csv", "key,n\n" + rows + "500,1\n")
        self.create("key:int64", "n:int32")
        self.good("put", self.table, 77, "key=77", "n=-1")
        result = self.loam("import", self.table, path, "--key", "key", "--on-error", "skip", "--json",
                           "--in-flight", 1)
        self.assertEqual(result.returncode, 5, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["imported"], report["lines_remaining"]), (999, "78, 1002"))
        self.assertEqual(self.count(), 1000)
        self.assertEqual(self.objects("get", self.table, 77)[0]["n"], -1, "the existing record is unchanged")
        self.bad(4, "import", self.table, path, "--key", "key", "--in-flight", 1,
                 says=f"line 2: record 1 of table {self.table} exists already")

    def test_wrong_nulls_and_columns_are_refused(self):
        self.create("n:int32", "t:text?")
        self.bad(4, "import", self.table, self.write("a.csv", "n,t\nNA,x\n"),
                 says="line 2, column 1 (n): 'NA' stands for NULL, and the field cannot be NULL")
        self.bad(4, "import", self.table, self.write("a.csv", "n,q\n1,x\n"), says="the table has no field for the column q")
        self.bad(4, "import", self.table, self.write("a.csv", "t\nx\n"), says="there is no column for the field n")
        self.bad(4, "import", self.table, self.write("a.csv", "n,t\n1,\"x\n"),
                 says="line 2, column 3: the quote that opens here is never closed")
        self.assertEqual(self.count(), 0)

    def test_truncated_gzip_is_reported(self):
        whole = cluster.SAMPLE.read_bytes()
        path = self.write("cut.csv.gz", whole[: len(whole) // 2])
        self.bad(4, "import", self.table, path, says="the compressed data ends too early; the file is truncated")
        self.bad(1, "table", "describe", self.table, says=self.table)
        self.good("import", self.table, cluster.SAMPLE)
        result = self.loam("import", self.table, path, "--json")
        self.assertEqual(result.returncode, 4, result.stderr)
        report = json.loads(result.stdout)
        self.assertIn("truncated", report["error"]["message"])
        self.assertFalse(report["finished"])
        self.assertEqual(self.count(), 27_004 + report["imported"], "all reported rows")

    def test_full_node_ends_the_import(self):
        with Dev(memory="16MiB", page_size="256KiB") as small:
            path = self.write("big.csv", "t\n" + "".join("x" * 1000 + "\n" for _ in range(40_000)))
            result = loam("import", "big", path, "--json", connect=small.address)
            self.assertEqual(result.returncode, 1, result.stderr)
            report = json.loads(result.stdout)
            self.assertIn("kNoSpace", report["error"]["message"])
            self.assertGreater(report["imported"], 0)
            counted = loam("scan", "big", "--aggregate", "count(*) as n", "--json", connect=small.address)
            self.assertEqual(json.loads(counted.stdout)["n"], report["imported"], "all reported rows")


class ImportTest(ClusterTest):
    def test_infers_types_and_values(self):
        path = self.write("a.csv", 'a,b,c,d\r\n1,1.5,x,NA\r\n,2,"NA","two\nlines"\r\n-7,1e3,007,""\r\n')
        self.good("import", self.table, path)
        self.assertEqual([f["type"] + f["nullable"] for f in self.objects("table", "describe", self.table)],
                         ["int32yes", "float64no", "textno", "textyes"])
        rows = self.objects("scan", self.table, "--order-by", "b")
        self.assertEqual(rows, [{"a": 1, "b": 1.5, "c": "x", "d": None},
                                {"a": None, "b": 2.0, "c": "NA", "d": "two\nlines"},
                                {"a": -7, "b": 1000.0, "c": "007", "d": ""}])

    def test_round_trip_through_standard_input(self):
        text = "key,n,t\n" + "".join(f"{i},{i},\"v{i}\"\n" for i in range(5000))
        self.good("import", self.table, "-", "--key", "key", stdin=text)
        out = self.good("scan", self.table, "--csv")
        self.good("import", self.table + "2", "-", "--key", "key", stdin=out)
        self.assertEqual(sorted(out.splitlines()), sorted(self.good("scan", self.table + "2", "--csv").splitlines()))

    def test_standard_input_may_be_a_file(self):
        path = self.write("a.csv", "key,n\n" + "".join(f"{i},{i}\n" for i in range(20_000)))  # more than one buffer
        with open(path) as file:
            result = cluster.subprocess.run(
                [cluster.PROGRAM, "import", self.table, "-", "--key", "key", "--connect", self.dev.address],
                stdin=file, capture_output=True, text=True, timeout=cluster.DEADLINE_S, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.count(), 20_000)

    def test_generated_keys_skip_existing_keys(self):
        path = self.write("a.csv", "n\n" + "".join(f"{i}\n" for i in range(1500)))
        self.create("n:int32")
        self.good("put", self.table, 3, "n=-1")
        self.good("import", self.table, path)
        self.assertEqual(self.count(), 1501)

    def test_imports_into_a_non_transactional_table(self):
        path = self.write("a.csv", "key,n\n" + "".join(f"{i},{i}\n" for i in range(1000)))
        self.good("import", self.table, path, "--key", "key", "--kind", "non-transactional")
        self.assertEqual(self.count(), 1000)
        result = self.bad(4, "import", self.table, path, "--key", "key")
        self.assertIn("line ", result.stderr)

    def test_shows_progress_on_a_terminal(self):
        path = self.write("a.csv", "n\n" + "".join(f"{i}\n" for i in range(400_000)))
        leader, follower = pty.openpty()
        process = cluster.subprocess.Popen(
            [cluster.PROGRAM, "import", self.table, path, "--connect", self.dev.address], stderr=follower,
            stdout=cluster.subprocess.PIPE, text=True)
        os.close(follower)
        shown = b""
        try:
            while part := os.read(leader, 4096):
                shown += part
        except OSError:  # the terminal's other end is closed
            pass
        output, _ = process.communicate(timeout=cluster.DEADLINE_S)
        os.close(leader)
        self.assertEqual(process.returncode, 0)
        self.assertIn("400,000 rows imported", output)
        self.assertRegex(shown.decode(), r"\r\x1b\[K(\[#*\.*\] )?[ \d]+ %  [\d,]+ rows  [\d,]+ rows/s  ETA \d")
        self.assertTrue(shown.endswith(b"\r\x1b[K"), "the bar is removed at the end")

    def test_interrupt_reports_the_imported_lines(self):
        process = cluster.subprocess.Popen(
            [cluster.PROGRAM, "import", self.table, "-", "--schema", "n:int32", "--connect", self.dev.address],
            stdin=cluster.subprocess.PIPE, stdout=cluster.subprocess.PIPE, stderr=cluster.subprocess.PIPE, text=True)
        rows = "".join(f"{i}\n" for i in range(1_000_000))  # more than import reads ahead
        process.stdin.write("n\n" + rows)
        process.stdin.flush()
        cluster.wait_until(
            lambda: self.loam("scan", self.table, "--limit", 1, "--csv").stdout.count("\n") > 1, "the first rows")
        process.send_signal(cluster.signal.SIGINT)
        output, errors = process.communicate(rows, timeout=cluster.DEADLINE_S)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("the import was interrupted", errors)
        imported = int(output.split(" ")[0].replace(",", ""))
        self.assertEqual(self.count(), imported, "all reported rows")
        self.assertIn(f"imported lines: 2-{imported + 1}\n", errors)

    def test_imports_the_sample(self):
        self.assertIn("27,004 rows imported", self.good("import", self.table, cluster.SAMPLE))
        self.assertEqual(self.count(), 27_004)


class ServerErrorsTest(unittest.TestCase):
    def test_wrong_address_is_an_error(self):
        with cluster.refusing_port() as port:
            result = loam("table", "list", connect=f"tcp://127.0.0.1:{port}")
        self.assertEqual(result.returncode, 3)
        self.assertIn(f"cannot connect to tcp://127.0.0.1:{port}: ", result.stderr)
        self.assertIn("`loam dev` starts one", result.stderr)
        result = loam("table", "list", connect="nonsense://here")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--connect: ", result.stderr)

    def test_other_service_at_the_address_is_an_error(self):
        with Dev() as dev:
            result = loam("table", "list", connect="tcp://" + dev.config["admin_address"])
            self.assertEqual(result.returncode, 3, result.stderr)
            self.assertIn("cannot connect to ", result.stderr)

    def test_port_in_use_is_an_error(self):
        with Dev() as dev:
            port = dev.address.rsplit(":", 1)[1]
            result = loam("dev", "--listen", dev.address, "--admin", "127.0.0.1:0", "--node-listen", "tcp://127.0.0.1:0",
                          "--node-admin", "127.0.0.1:0", "--memory", "64MiB")
            self.assertEqual(result.returncode, 7)
            self.assertIn("commit manager: ", result.stderr)
            self.assertIn(port, result.stderr)
            self.assertEqual(loam("table", "list", connect=dev.address).returncode, 0, "the other cluster works")

    def test_too_little_memory_is_an_error(self):
        result = loam("dev", "--free-ports", "--memory", "900TiB")
        self.assertEqual(result.returncode, 7)
        self.assertIn("storage node: it needs 900 TiB, and only ", result.stderr)
        result = loam("dev", "--free-ports", "--memory", "64KiB")
        self.assertIn(result.returncode, (2, 7))
        self.assertIn("storage node: ", result.stderr)

    def test_memory_limit_of_the_process_is_an_error(self):
        limit = 1 << 30
        script = f"ulimit -v {limit // 1024}; exec {cluster.PROGRAM} dev --free-ports --memory 4GiB"
        result = cluster.subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=cluster.DEADLINE_S, check=False)
        self.assertEqual(result.returncode, 7, result.stderr)
        self.assertIn("storage node: ", result.stderr)

    def test_import_fails_when_the_cluster_dies(self):
        with Dev() as dev:
            rows = "n\n" + "".join(f"{i}\n" for i in range(1_000_000))  # more than import reads ahead
            process = cluster.subprocess.Popen(
                [cluster.PROGRAM, "import", "rows", "-", "--connect", dev.address], stdin=cluster.subprocess.PIPE,
                stdout=cluster.subprocess.PIPE, stderr=cluster.subprocess.PIPE, text=True)
            process.stdin.write(rows[: 5 << 20])
            process.stdin.flush()
            cluster.wait_until(
                lambda: loam("scan", "rows", "--limit", 1, "--csv", connect=dev.address).stdout.count("\n") > 1,
                "the first rows")
            dev.kill()
            # The import waits for the cluster three times: for the commit, for its outcome, and to end its session.
            _, errors = process.communicate(timeout=cluster.DEADLINE_S)
            self.assertIn(process.returncode, (1, 3), errors)
            self.assertIn("the import stopped", errors)


class DocumentationTest(unittest.TestCase):
    def test_documented_exit_codes_match_the_program(self):
        source = (pathlib.Path(__file__).resolve().parents[1] / "src" / "exit_codes.h").read_text()
        codes = {int(number) for number in re.findall(r"kExit\w+ = (\d+)", source)}
        documented = {int(number) for number in re.findall(r"^\| (\d+) \|", DOCS.read_text(), re.MULTILINE)}
        self.assertEqual(codes, documented)


if __name__ == "__main__":
    cluster.main()
