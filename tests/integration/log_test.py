"""The logs of real servers: their formats can be parsed for any bytes of clients, and a crash leaves its report."""

import json
import os
import re
import resource
import signal
import subprocess
import unittest

from cluster import MANAGER, NODE, WORKLOAD, Cluster, die_with_the_test, main, poll

SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
# The name of a client with everything that a format has to quote: a line break, quotes, bytes that are not UTF-8.
EVIL_NAME = b'evil "name"\nlevel=error event=crash \xff\\ \x01 a=b'
# The commit manager shows the control characters of a name as question marks.
EVIL_TEXT = re.sub(r"[\x00-\x1f]", "?", EVIL_NAME.decode("utf-8", "replace"))


def parse_logfmt(line):
    """Returns the fields of a line in logfmt."""
    fields, at = {}, 0
    for match in re.finditer(r'([a-z0-9_]+)=("(?:[^"\\]|\\.)*"|[^ "=\\]*)(?: |$)', line):
        if match.start() != at:
            break
        at = match.end()
        value = match.group(2)
        fields[match.group(1)] = json.loads(value) if value.startswith('"') else value
    if at != len(line):
        raise AssertionError(f"no logfmt at {at}: {line!r}")
    return fields


def text_of(path):
    """Returns the content of a file; an empty text if there is no file."""
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def known_events():
    with open("docs/log-events.md", encoding="utf-8") as page:
        return set(re.findall(r"^\| `([^`]+)` \|", page.read(), re.MULTILINE))


def build_id(program):
    notes = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
    return re.search(r"Build ID: ([0-9a-f]+)", notes).group(1)


def functions(program, stack):
    """Returns the functions of the program that are in the stack of a crash."""
    name = os.path.basename(program)
    offsets = [frame.split("+")[1] for frame in stack.split() if frame.startswith(f"{name}+")]
    found = subprocess.run(["addr2line", "-f", "-C", "-e", program, *offsets], capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines()[::2] if line != "??"]


def lines_of(process):
    """Returns the lines that a process has logged. The first line of the file is the note of the test about its start."""
    with open(process.log_path, "rb") as file:
        note, *lines = file.read().removesuffix(b"\n").split(b"\n")
    assert note.startswith(b"--- "), note
    return lines


class LogTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def make_cluster(self, log_format, nodes=1, manager_alone=False):
        arguments = ["--log-format", log_format]
        made = Cluster(nodes, manager_options=arguments, node_options=arguments, durable=False)
        self.addCleanup(made.close)
        if manager_alone:
            made.start_manager()
        else:
            made.start()
        return made

    def leave_evil_client(self, cluster):
        """Lets the session of a client with a malicious name run out, which the commit manager logs."""
        history = os.path.join(cluster.folder, "evil.jsonl")
        with subprocess.Popen([WORKLOAD, "--connect", cluster.address, "--name", EVIL_NAME, "--history", history, "console"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_the_test) as client:
            client.stdout.readline()
            client.kill()
        poll(lambda: "session.ended" in cluster.manager.log(), "the session ends")

    def check_lines(self, log_format, parse):
        cluster = self.make_cluster(log_format)
        self.leave_evil_client(cluster)
        cluster.nodes[0].terminate()
        cluster.manager.terminate()
        events = known_events()
        for process in (cluster.manager, *cluster.nodes):
            lines = [parse(line.decode("utf-8")) for line in lines_of(process)]
            logged = [line["event"] for line in lines]
            # What ends while the program stops may be logged in between.
            self.assertEqual((logged.count("program.stopping"), logged[-1]), (1, "program.stopped"))
            for line in lines:
                self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
                self.assertIn(line["level"], ("info", "warning", "error"))
                self.assertIn(line["event"], events)
                self.assertTrue(line["message"])
            if process is cluster.manager:
                ended = next(line for line in lines if line["event"] == "session.ended")
                self.assertEqual(ended["client"], EVIL_TEXT)
                self.assertIn(EVIL_TEXT, ended["message"])
                self.assertIn(int(ended["session"]), range(1, 1_000))
                self.assertEqual(lines[0]["build_id"], build_id(MANAGER))

    def test_json_lines_can_be_parsed(self):
        self.check_lines("json", json.loads)

    def test_logfmt_lines_can_be_parsed(self):
        self.check_lines("logfmt", parse_logfmt)

    def test_text_lines_cannot_be_forged(self):
        cluster = self.make_cluster("text")
        self.leave_evil_client(cluster)
        cluster.manager.terminate()
        lines = lines_of(cluster.manager)
        for line in lines:
            self.assertRegex(line, rb"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (info|warning|error) \[[a-z0-9_.]+\] ")
        self.assertEqual(sum(b'(evil "name"?level=error event=crash ' in line for line in lines), 1)

    def check_crash(self, process, program, number):
        process.signal_main_thread(number)
        self.assertEqual(process.wait(), -number)
        lines = [json.loads(line) for line in process.log().splitlines()]
        [line] = [line for line in lines if line["event"] == "crash"]
        self.assertEqual(line["level"], "error")
        self.assertEqual(line["signal"], number.name)
        self.assertEqual(line["sender"], os.getpid())
        self.assertEqual(line["build_id"], build_id(program))
        self.assertEqual(line["thread"], os.path.basename(program)[:15])
        self.assertIn("main", functions(program, line["stack"]), line["stack"])

    def test_a_storage_node_logs_its_crash(self):
        cluster = self.make_cluster("json", nodes=len(SIGNALS))
        for number, node in zip(SIGNALS, cluster.nodes):
            with self.subTest(number):
                self.check_crash(node, NODE, number)

    def test_a_commit_manager_logs_its_crash(self):
        cluster = self.make_cluster("json", manager_alone=True)
        for number in SIGNALS:
            with self.subTest(number):
                self.check_crash(cluster.manager, MANAGER, number)
                cluster.start_manager()

    def test_a_crash_goes_to_the_log_file(self):
        for log_format, says in (("text", " error [crash] the program crashed by SIGSEGV, sent by process "),
                                 ("logfmt", " level=error event=crash message=\"the program crashed by SIGSEGV, ")):
            cluster = self.make_cluster(log_format, manager_alone=True)
            path = os.path.join(cluster.folder, "server.log")
            cluster.manager.terminate()
            cluster.manager.start([MANAGER, "--listen", "tcp://127.0.0.1:0", "--admin", "", "--log-file", path,
                                   "--log-format", log_format])

            poll(lambda: "serving at" in text_of(path), "the commit manager serves")
            cluster.manager.signal(signal.SIGSEGV)
            self.assertEqual(cluster.manager.wait(), -signal.SIGSEGV)
            crashes = [line for line in text_of(path).splitlines() if says in line]
            self.assertEqual(len(crashes), 1)
            self.assertIn(build_id(MANAGER), crashes[0])
            self.assertNotIn("crash", cluster.manager.log(), "nothing goes to standard error")


if __name__ == "__main__":
    main()
