"""Tests `loam import` with files and pipes of all kinds, and the commands that it prints to resume or repeat an
import."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import zipfile

import cluster
from cluster import ClusterTest


def catches_interrupts(pid):
    """Returns whether the process has a handler for SIGINT."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        caught = re.search(r"SigCgt:\s*(\w+)", status.read()).group(1)
    return int(caught, 16) >> (signal.SIGINT - 1) & 1 == 1


class ImportCase(ClusterTest):
    def shell(self, command, code=0, stdin=""):
        """Runs a printed command in a shell without the LOAM_ variables of this process. Returns its output."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LOAM_")}
        result = subprocess.run(["sh", "-c", command], input=stdin if isinstance(stdin, bytes) else stdin.encode(),
                                capture_output=True, env=environment, timeout=cluster.DEADLINE_S, check=False)
        self.assertEqual(result.returncode, code, f"{command}: {result.stdout}{result.stderr}")
        return result.stdout.decode()

    def start(self, *arguments, source="-"):
        """Starts an import from a pipe that stays open. Returns the process."""
        process = subprocess.Popen(
            [cluster.PROGRAM, "import", self.table, source, *map(str, arguments), "--connect", self.dev.address],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def give(self, process, text):
        process.stdin.write(text)
        process.stdin.flush()

    def wait_for_rows(self, count):
        def there():
            result = self.loam("scan", self.table, "--aggregate", "count(*) as n", "--json")
            return result.returncode == 0 and json.loads(result.stdout)["n"] == count
        cluster.wait_until(there, f"{count} rows are imported")

    def end(self, process, code):
        """Waits until the import ends with this exit code. Returns its output and its error text."""
        process.wait(cluster.DEADLINE_S)
        output, errors = process.stdout.read(), process.stderr.read()
        for stream in (process.stdout, process.stderr):
            stream.close()
        try:
            process.stdin.close()
        except BrokenPipeError:
            pass
        self.assertEqual(process.returncode, code, output + errors)
        return output, errors

    def printed_command(self, text):
        """Returns the command at the end of a message, in the same line or on a line of its own."""
        command = re.search(r"(?:run|to): (.*import.*)$|:\n  (.*import.*)$", text, re.MULTILINE)
        self.assertIsNotNone(command, text)
        return command.group(1) or command.group(2)

    def rows(self, table=None):
        return sorted(self.good("scan", table or self.table, "--with-key", "--csv").splitlines()[1:])


class GoOnTest(ImportCase):
    def test_resume_command_has_every_option(self):
        """An interrupted import prints a command that resumes it. The command has every option of the first command."""
        path = os.path.join(self.directory.name, "it's $HOME of \"x\".csv")
        options = ["--key", "the key", "--schema", "n:int64,\"a text\":text?", "--kind", "non-transactional",
                   "--on-error", "skip", "--null", "it's", "--null", "", "--null", "-", "--delimiter", "|",
                   "--lines", "2-2000", "--lines", "2003-", "--batch", "7", "--in-flight", "3", "--json"]
        texts = ["it's", "NA", "", "-", "$HOME", "\"it's\"", "a,b;c"]
        lines = ["n|the key|a text"] + [f"{n}|{n * 2}|{texts[n % 7]}" for n in range(2, 3001)]
        lines[1500] = "oops|1|bad"
        os.mkfifo(path)
        process = self.start(*options, source=path)
        with open(path, "w", encoding="utf-8") as writer:
            writer.write("\n".join(lines[:1000]) + "\n")
            writer.flush()
            self.wait_for_rows(999)
            process.send_signal(signal.SIGINT)
            output, errors = self.end(process, 130)
        self.assertEqual(errors, "")
        report = json.loads(output)
        self.assertEqual((report["lines_imported"], report["lines_remaining"]), ("2-1000", "1001-2000, 2003-"))

        options = set(re.findall(r"^ +(--[a-z-]+)", self.good("import", "--help"), re.MULTILINE))
        options |= set(re.findall(r",(--[a-z-]+)", self.good("import", "--help")))
        for option in options - {"--help"}:
            self.assertIn(f" {option} ", report["resume_command"] + " ", "a value for this option is missing in this test")
        os.remove(path)
        self.write(os.path.basename(path), "\n".join(lines) + "\n")
        self.shell(report["resume_command"], code=5)
        stands_for = {"it's": "", "": "", "-": "", "\"it's\"": "it's", "a,b;c": "\"a,b;c\"", "NA": "\"NA\""}
        expected = [f"{n * 2},{n},{stands_for.get(texts[n % 7], texts[n % 7])}"
                    for n in range(2, 3001) if n not in (1501, 2001, 2002)]
        self.assertEqual(self.rows(), sorted(expected))

    def test_resume_command_protects_a_file_name_like_an_option(self):
        self.write("-odd.csv", "key,n\n1,1\n2,x\n3,3\n")
        folder = f"cd '{self.directory.name}' && "
        options = f"--key key --schema key:int64,n:int32 --connect {self.dev.address} --json"
        command = f"'{cluster.PROGRAM}' import {options} -- {self.table} -odd.csv"
        report = json.loads(self.shell(folder + command, code=4))
        self.assertIn(f" import {self.table} ./-odd.csv ", report["resume_command"])
        self.write("-odd.csv", "key,n\n1,1\n2,2\n3,3\n")
        self.shell(folder + report["resume_command"])
        self.assertEqual(self.rows(), ["1,1,1", "2,2,2", "3,3,3"])

    def test_unterminated_bad_last_line_is_not_imported(self):
        path = self.write("a.csv", "key,n\n1,1\n2,x")
        self.create("key:int64", "n:int32")
        result = self.bad(4, "import", self.table, path, "--key", "key", says="not imported: 3")
        self.write("a.csv", "key,n\n1,1\n2,2")
        self.shell(self.printed_command(result.stderr))
        self.assertEqual(self.rows(), ["1,1,1", "2,2,2"])

    def test_skips_only_the_record_that_is_too_long(self):
        inside = "".join(f"{i},inside\n" for i in range(400_000))
        self.create("key:int64", "t:text")
        path = self.write("long.csv", f"key,t\n1,one\n2,\"{inside}\"\n3,three\n")
        result = self.loam("import", self.table, path, "--key", "key", "--on-error", "skip", "--json")
        self.assertEqual(result.returncode, 5, result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual((report["imported"], report["bad"], report["lines_remaining"]), (2, 1, "3-400003"))
        self.assertEqual(self.rows(), ["1,1,one", "3,3,three"])


class PipeTest(ImportCase):
    def slow_pipe(self, *options):
        process = self.start("--key", "key", *options)
        self.give(process, "key,n\n1,1\n2,2\n")
        self.wait_for_rows(2)
        self.give(process, "3,3\n")
        self.wait_for_rows(3)
        process.stdin.close()
        return self.end(process, 0)

    def test_slow_pipe_rows_are_imported_at_once(self):
        self.create("key:int64", "n:int64")
        self.slow_pipe()

    def test_slow_pipe_rows_define_the_table(self):
        _, errors = self.slow_pipe()
        self.assertIn("the fields are guessed from the first 2 rows: 'key:int64?,n:int64?'", errors)

    def test_slow_pipe_rows_fit_a_given_schema(self):
        self.slow_pipe("--schema", "key:int64,n:int16", "--delimiter", ",")

    def test_interrupt_ends_a_waiting_import(self):
        for text, imported in (("", 0), ("key,n\n", 0), ("key,n\n1,1\n2,2\n", 2)):
            with self.subTest(text=text):
                self.create("key:int64", "n:int32")
                process = self.start("--key", "key")
                self.give(process, text)
                cluster.wait_until(lambda: catches_interrupts(process.pid), "the import catches signals")
                if imported:
                    self.wait_for_rows(imported)
                process.send_signal(signal.SIGINT)
                output, errors = self.end(process, 130)
                self.assertIn(f"{imported} rows imported into {self.table}", output)
                self.assertIn("the import was interrupted", errors)
                self.shell(self.printed_command(errors), stdin="key,n\n1,1\n2,2\n3,3\n")
                self.assertEqual(self.rows(), ["1,1,1", "2,2,2", "3,3,3"])
                self.good("table", "drop", self.table, "--yes")

    def test_failure_ends_the_import_before_the_pipe_closes(self):
        self.create("key:int64", "n:int32")
        self.good("put", self.table, 2, "key=2", "n=2")
        process = self.start("--key", "key")
        self.give(process, "key,n\n1,1\n2,2\n")
        _, errors = self.end(process, 4)
        self.assertIn("line 3: record 2", errors)


class GuessTest(ImportCase):
    """Imports from a pipe whose later rows do not fit the fields that were guessed from its first rows."""
    TEXT = "key,\"a b\",n\n1,x,1\n2,y,2\n3,z,1.5\n4,,9007199254740993\n"

    def turn_decimal(self, *options):
        process = self.start("--key", "key", *options)
        head = self.TEXT.index("3,z")
        self.give(process, self.TEXT[:head])
        self.wait_for_rows(2)
        return process, lambda: self.give(process, self.TEXT[head:])

    def test_wrong_guess_drops_the_table_and_names_wider_fields(self):
        process, send_rest = self.turn_decimal()
        send_rest()
        output, errors = self.end(process, 4)
        self.assertIn("line 4, column 5 (n): '1.5' is not int64", errors)
        self.assertIn("0 rows imported", output)
        self.assertIn(f"table {self.table}, which this import created, is dropped again", errors)
        self.bad(1, "table", "describe", self.table, says=self.table)
        command = self.printed_command(errors)
        self.assertIn("--schema 'key:int64?,\"a b\":text?,n:float64?'", command)
        self.shell(command, stdin=self.TEXT.replace("9007199254740993", "4"))
        self.assertEqual(self.rows(), ["1,1,x,1", "2,2,y,2", "3,3,z,1.5", "4,4,,4"])

    def test_wrong_guess_keeps_an_existing_table(self):
        self.create("key:int64", "a b:text?", "n:int64")
        process, send_rest = self.turn_decimal()
        send_rest()
        _, errors = self.end(process, 4)
        self.assertNotIn("dropped", errors)
        self.assertNotIn("--schema", errors)
        self.assertEqual(self.count(), 2)

    def test_wrong_guess_keeps_a_table_that_others_wrote_to(self):
        process, send_rest = self.turn_decimal()
        self.good("put", self.table, 77, "n=77")
        send_rest()
        _, errors = self.end(process, 4)
        self.assertNotIn("dropped", errors)
        self.assertIn("a new table would take these lines by --schema 'key:int64?,\"a b\":text?,n:float64?'", errors)
        self.assertEqual(self.count(), 3)

    def test_skipped_rows_report_a_wider_schema(self):
        process, send_rest = self.turn_decimal("--on-error", "skip", "--json")
        send_rest()
        process.stdin.close()
        output, _ = self.end(process, 5)
        report = json.loads(output)
        self.assertEqual((report["imported"], report["dropped_table"]), (3, False))
        self.assertEqual(report["wider_schema"], "key:int64?,\"a b\":text?,n:text?",
                         "the imported integer has no exact float64")


class ContentTest(ImportCase):
    """Files that are not CSV in UTF-8. The message names file and line, the exit code is 4, and the printed command
    imports the file."""
    TEXT = "name,price\ncafé,5\nnaïve,6\n"
    ROWS = ["café,5", "naïve,6"]

    def imports_by_advice(self, path, *options, says):
        result = self.bad(4, "import", self.table, path, *options, says=path)
        self.assertIn(says, result.stderr)
        self.bad(1, "table", "describe", self.table, says=self.table)  # no table was created
        self.shell(self.printed_command(result.stderr))
        self.assertEqual([row.split(",", 1)[1] for row in self.rows()], self.ROWS)
        self.good("table", "drop", self.table, "--yes")
        with open(path, "rb") as file:
            data = file.read()
        result = subprocess.run([cluster.PROGRAM, "import", self.table, "-", *options, "--connect", self.dev.address],
                                input=data, capture_output=True, timeout=cluster.DEADLINE_S, check=False)
        self.assertEqual(result.returncode, 4, result.stderr)
        self.shell(self.printed_command(result.stderr.decode()), stdin=data)
        self.assertEqual([row.split(",", 1)[1] for row in self.rows()], self.ROWS)
        self.good("table", "drop", self.table, "--yes")

    def test_advice_converts_other_encodings(self):
        for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
            path = self.write("it's a file.csv", self.TEXT.encode(encoding))
            self.imports_by_advice(path, says="line 1: this is UTF-")
        path = self.write("latin.csv", self.TEXT.replace("name", "nâme").encode("latin-1"))
        self.imports_by_advice(path, says="line 1, column 1: this is ISO-8859-1 text")

    def test_advice_converts_a_value_in_latin_1(self):
        path = self.write("latin.csv", self.TEXT.encode("latin-1"))
        result = self.bad(4, "import", self.table, path, says="line 2, column 1 (name): 'caf\\xe9' is not UTF-8 text")
        command = re.search(r"if this is ISO-8859-1 text, run instead: (.*)", result.stderr).group(1)
        self.shell(command)
        self.assertEqual([row.split(",", 1)[1] for row in self.rows()], self.ROWS)

    def test_advice_unpacks_archives(self):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.csv", self.TEXT)
        if shutil.which("unzip"):
            self.imports_by_advice(self.write("a.zip", packed.getvalue()), says="this is a zip archive")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("[Content_Types].xml", "<xml/>")
        self.bad(4, "import", self.table, self.write("a.xlsx", packed.getvalue()),
                 says="line 1: this is a spreadsheet; save it as CSV in UTF-8")
        if shutil.which("xz"):
            data = subprocess.run(["xz", "-c"], input=self.TEXT.encode(), capture_output=True, check=True).stdout
            self.imports_by_advice(self.write("a.xz", data), says="this is an xz file")

    def test_refuses_headers_over_the_limits(self):
        path = self.write("wide.csv", ",".join(f"c{i}" for i in range(1025)) + "\n")
        self.bad(4, "import", self.table, path,
                 says=f"{path}: line 1: the header names 1025 fields, and a table has at most 1024; divide the columns")
        path = self.write("long.csv", "a," + "é" * 150 + "\n")
        self.bad(4, "import", self.table, path,
                 says=f"{path}: line 1, column 3 (" + "é" * 20 + "…): the name has 300 bytes, and a field's name at most 255")
        self.bad(1, "table", "describe", self.table, says=self.table)
        path = self.write("key.csv", ",".join(["_key"] + [f"c{i}" for i in range(1024)]) + "\n1" + ",1" * 1024 + "\n")
        self.good("import", self.table, path, "--key", "_key")
        self.assertEqual(self.count(), 1)


class KeyColumnTest(ImportCase):
    def test_keys_survive_export_and_import(self):
        self.create("n:int64?", "t:text?", "a;b:text?")
        for key, values in ((7, ["n=1", "t=", "a;b=x|y"]), (2**64 - 1, ["t=NA", "n=-5"]), (9, ["t=two\nlines;,\t\""])):
            self.good("put", self.table, key, *values)
        out = self.good("scan", self.table, "--with-key", "--csv")
        copy = self.table + "_copy"
        self.good("import", copy, "-", "--key", "_key", stdin=out)
        again = self.good("scan", copy, "--with-key", "--csv")
        self.assertEqual(sorted(csv.reader(io.StringIO(again))), sorted(csv.reader(io.StringIO(out))))
        self.assertEqual(self.objects("get", copy, 7), [{"_key": 7, "n": 1, "t": "", "a;b": "x|y"}])
        fields = [field["field"] for field in self.objects("table", "describe", copy)]
        self.assertEqual(fields, ["n", "t", "a;b"], "the key is not a field")

    def test_printed_command_imports_the_keys(self):
        path = self.write("a.csv", "_key,a\n5,x\n")
        result = self.bad(4, "import", self.table, path, says="line 1: the column _key has the keys of records")
        self.shell(self.printed_command(result.stderr))
        self.assertEqual(self.rows(), ["5,x"])
        self.good("table", "drop", self.table, "--yes")
        self.good("import", self.table, path, "--schema", "_key:int64,a:text")
        self.assertEqual(self.good("scan", self.table, "--csv"), "_key,a\n5,x\n")

    def test_key_column_avoids_a_field_of_the_same_name(self):
        self.create("_key:text", "_version:int32", "a:int32")
        self.good("put", self.table, 1, "_key=mine", "_version=3", "a=2")
        self.assertEqual(self.objects("get", self.table, 1), [{"__key": 1, "_key": "mine", "_version": 3, "a": 2}])
        shown = self.objects("get", self.table, 1, "--with-version", "--fields", "a")[0]
        self.assertEqual(list(shown), ["__key", "__version", "a"])
        out = self.good("scan", self.table, "--with-key", "--csv")
        self.assertEqual(out, "__key,_key,_version,a\n1,mine,3,2\n")
        self.good("import", self.table + "_copy", "-", "--key", "__key", stdin=out)
        self.assertEqual(self.good("scan", self.table + "_copy", "--with-key", "--csv"), out)


class DelimiterTest(ImportCase):
    def test_delimiter_is_detected(self):
        for number, delimiter in enumerate([";", "\t", "|"]):
            table = f"{self.table}_{number}"
            lines = ["a,b", "\"x" + delimiter + "y\"", "3"], ["1,5", "2", "3"], ["", "NA", "\"\""]
            path = self.write("a.csv", delimiter.join("pqr") + "\n" + "".join(delimiter.join(x) + "\n" for x in lines))
            result = self.loam("import", table, path)
            self.assertEqual(result.returncode, 0, result.stderr)
            shown = "'\\t'" if delimiter == "\t" else f"'{delimiter}'"
            self.assertIn(f"{path}: the first rows have their fields between {shown}", result.stderr)
            rows = self.objects("scan", table)
            self.assertEqual(sorted(row["p"] or "" for row in rows), ["", "1,5", "a,b"])
            forced = re.search(r"say (--delimiter \S+)", result.stderr).group(1)
            self.shell(f"{cluster.PROGRAM} import {table}_forced {path} {forced} --connect {self.dev.address}", code=4)
        self.assertEqual(self.objects("import", self.table, path)[0]["delimiter"], "|")

    def test_given_delimiter_overrides_detection(self):
        path = self.write("a.csv", "a;b\n1;2\n3;4\n")
        self.good("import", self.table, path, "--delimiter", ",")
        self.assertEqual([field["field"] for field in self.objects("table", "describe", self.table)], ["a;b"])

    def test_ambiguous_rows_give_a_hint(self):
        path = self.write("a.csv", "notes; remarks\nx\ny\n")
        result = self.loam("import", self.table, path)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("fields are taken to be between commas; if they are between ';', say --delimiter ';'", result.stderr)
        self.assertEqual([field["field"] for field in self.objects("table", "describe", self.table)], ["notes; remarks"])
        forced = re.search(r"say (--delimiter \S+)", result.stderr).group(1)
        self.shell(f"{cluster.PROGRAM} import {self.table}_forced {path} {forced} --connect {self.dev.address}", code=4)
        result = self.loam("import", self.table, self.write("b.csv", "a,b\n1,2\n"), "--schema", "a:int32,b:int32")
        self.assertNotIn("delimiter", result.stderr, "no hint if the rows decide")


if __name__ == "__main__":
    cluster.main()
