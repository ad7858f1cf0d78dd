"""Tests the commands that `loam` proposes in its messages. Each test provokes such a message and runs the command in a
shell exactly as it was printed."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import unittest

import cluster
from cluster import PROGRAM, SAMPLE, loam

FORMS = pathlib.Path(__file__).resolve().parents[1] / "src" / "shell" / "hint.cc"
SMALL_CLUSTER = " --nodes 1 --free-ports --memory 64MiB --node-option page=2MiB"


def form_of(words):
    """Returns a pattern for the command with these words. If a name begins with '-', all names follow "--"."""
    value = r"(?:[^\s'&]|'[^']*'|\\')+"
    command = re.match(r"[^{]*?(?= \{\}| --|$)", words).group(0)
    names, options = re.match(r"((?: \{\})*)(.*)", words[len(command):]).groups()
    names = names.replace("{}", value)
    options = re.escape(options).replace(r"\ \{\}", f"[ =]{value}")
    options += rf"(?: --(?:connect|admin|dir) {value})*"
    return re.compile(rf"loam {re.escape(command)}(?:{names}{options}|{options} --{names})$")


def forms():
    """Returns the pattern of each hint's command, by the name of the hint."""
    found = re.findall(r'\{Hint::(k\w+), HintLocation::k\w+,\s*"([^"]+)"\}', FORMS.read_text())
    return {name: form_of(words) for name, words in found}


def commands_in(text):
    """Returns the commands in a text: between backquotes, or alone on an indented line."""
    found = re.findall(r"`(loam [^`]+)`|^ +(?:try +)?(loam .+)$", text, re.MULTILINE)
    return [part for one in found for part in (one[0] or one[1]).split(" && ")]


class HintsTest(unittest.TestCase):
    provoked = set()

    @classmethod
    def setUpClass(cls):
        cls.env = {name: value for name, value in os.environ.items() if not name.startswith("LOAM_")}
        cls.env["PATH"] = f"{os.path.dirname(PROGRAM)}:{cls.env['PATH']}"
        cls.env["LOAM_DATA"] = str(SAMPLE.parent)

    @classmethod
    def tearDownClass(cls):
        missing = set(forms()) - cls.provoked
        assert not missing, f"commands that no test has run: {missing}"

    def shell(self, command, code=0):
        """Runs a line in a shell. Returns its output. Commands that ask for confirmation on a terminal get --yes."""
        command = re.sub(r"^loam (index drop|node accept-loss) ", r"\g<0>--yes ", command)
        result = subprocess.run(["bash", "-c", command], env=self.env, stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, timeout=cluster.DEADLINE_S, check=False)
        self.assertEqual(result.returncode, code, f"{command}: {result.stdout}{result.stderr}")
        return result.stdout + result.stderr

    def hints(self, text, *names):
        """Checks that the commands in `text` are those of the hints `names`. Returns the command of each hint, which
        the caller must run."""
        commands = commands_in(text)
        found = [next((name for name, form in forms().items() if form.match(command)), command)
                 for command in commands]
        self.assertEqual(sorted(found), sorted(names), text)
        self.provoked.update(names)
        return dict(zip(found, commands))

    def test_hints_about_tables_and_indexes_work(self):
        with cluster.Dev() as dev:
            place = f" --connect {dev.address}"
            for command in self.hints(self.shell("loam table list" + place), "kTableCreateHelp",
                                      "kImportHelp").values():
                self.shell(command)
            self.shell(self.hints(self.shell("loam index list" + place), "kIndexCreateHelp")["kIndexCreateHelp"])
            self.shell("loam table create my_table --field 'a b:int32' --field c:int32" + place)
            self.shell("loam put my_table 1 'a b=1' c=2" + place)
            self.shell("loam index create my_index --table my_table --fields 'a b:desc'" + place)
            hints = self.hints(self.shell("loam index create my_index --table my_table --fields c" + place, 1),
                               "kIndexCreate", "kIndexDrop")
            self.shell(hints["kIndexDrop"])
            self.shell(hints["kIndexCreate"])
            hints = self.hints(self.shell("loam scan my_index" + place, 1), "kScanByIndex")
            self.assertIn("1", self.shell(hints["kScanByIndex"]))
            self.assertIn("a b:desc", self.shell("loam index list" + place))
            hints = self.hints(self.shell("loam scan nowhere" + place, 1), "kTableList")
            self.assertIn("my_table", self.shell(hints["kTableList"]))
            hints = self.hints(self.shell("loam node accept-loss 9 --yes" + place, 1), "kNodeList")
            self.shell(hints["kNodeList"])
            hints = self.hints(self.shell("loam query cancel 9-00000001" + place, 1), "kQueries")
            self.shell(hints["kQueries"])

    def test_hint_about_an_old_snapshot_works(self):
        with cluster.Dev() as dev, tempfile.TemporaryDirectory() as folder:
            place = f" --connect {dev.address}"
            rows = pathlib.Path(folder) / "rows.csv"
            rows.write_text("key,t\n" + "".join(f"{key},{'x' * 100_000}\n" for key in range(40)))
            self.shell("loam table create t --field t:text" + place)
            self.shell(f"loam import t {rows} --key key{place}")
            # The output stays unread, so the scan keeps its snapshot until the lease of its session runs out.
            status = ""
            while "session end" not in status:
                with subprocess.Popen([PROGRAM, "scan", "t", "--connect", dev.address], env=self.env,
                                      stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as scan:
                    self.shell("loam put t 1 t=x" + place)
                    status = self.shell("loam status --old-snapshot 1ns" + place)
                    if "session end" in status:
                        self.shell(self.hints(status, "kSessionEnd")["kSessionEnd"])
                    scan.kill()

    def test_hints_about_fields_that_look_like_options_work(self):
        with cluster.Dev() as dev:
            place = f" --connect {dev.address}"
            self.shell("loam table create t --field -a:int32 --field --b:int32" + place)
            self.shell(f"loam put{place} -- t 1 -a=1 --b=2")
            for index, unique, form in (("i", "", "kIndexCreate"), ("u", " --unique", "kIndexCreateUnique")):
                create = f"loam index create {index} --table t{unique}{place} --fields"
                self.shell(create + "=--b,-a")
                hints = self.hints(self.shell(create + " -a", 1), form, "kIndexDrop")
                self.shell(hints["kIndexDrop"])
                self.shell(hints[form])
                self.assertIn("--b,-a", self.shell("loam index list" + place))

    def test_hints_about_a_lost_node_work(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        place = f" --dir '{folder}/my cluster'"
        self.addCleanup(lambda: loam("cluster", "down", "--dir", f"{folder}/my cluster"))
        hints = self.hints(self.shell("loam cluster status" + place, 1), "kClusterUp")
        up = hints["kClusterUp"] + SMALL_CLUSTER
        self.shell(up)
        hints = self.hints(self.shell(up, 1), "kClusterStatus", "kClusterDown")
        self.shell(hints["kClusterStatus"])
        address = json.loads(self.shell("loam cluster status --json" + place).splitlines()[0])["address"]
        self.shell(f"loam table create t --field a:int32 --connect {address}")
        self.shell(f"loam index create i --table t --fields a --connect {address}")
        self.shell("loam cluster stop node-1 --kill" + place)
        partly = self.hints(self.shell(up, 2), "kClusterUp", "kClusterDown")
        status = self.hints(self.shell(partly["kClusterUp"]), "kStatus")
        lost = self.hints(self.shell(status["kStatus"], 6), "kAcceptLoss")
        self.shell(lost["kAcceptLoss"])
        damaged = self.hints(self.shell(status["kStatus"]), "kIndexList", "kIndexDrop")
        self.assertIn("damaged", self.shell(damaged["kIndexList"]))
        anew = self.hints(self.shell(f"loam scan t --index i --connect {address}", 1), "kIndexDrop", "kIndexCreate")
        self.shell(anew["kIndexDrop"])
        self.shell(anew["kIndexCreate"])
        self.shell(f"loam scan t --index i --connect {address}")
        self.shell(partly["kClusterDown"])

    def test_hints_about_loam_dev_work(self):
        with cluster.refusing_port() as port:
            command = self.hints(self.shell(f"loam scan t --connect tcp://127.0.0.1:{port}", 3), "kDev")["kDev"]
        dev = subprocess.Popen(["bash", "-c", f"exec {command} --free-ports --memory 256MiB --page-size 1MiB"],
                               env=self.env, stdout=subprocess.PIPE, text=True)
        try:
            text = ""
            while "Ctrl-C" not in text:
                line = dev.stdout.readline()
                self.assertTrue(line, f"it ends early: {text}")
                text += line
            hints = self.hints(text, "kImport", "kScanCarriers")
            self.assertIn("27,004 rows imported", self.shell(hints["kImport"]))
            self.assertIn("UA", self.shell(hints["kScanCarriers"]))
        finally:
            dev.send_signal(signal.SIGINT)
            self.assertEqual(dev.wait(cluster.DEADLINE_S), 0)
            dev.stdout.close()

    def test_hint_about_the_completion_script_works(self):
        help_text = self.shell("loam completion --help")
        command = re.search(r"source <\(loam completion bash\)", help_text).group(0)
        self.assertIn("complete -o default -F _loam loam", self.shell(command + "; complete -p loam"))


if __name__ == "__main__":
    cluster.main()
