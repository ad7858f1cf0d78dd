"""Tests runner.py: it reports blocks that fail, and leaves no process running."""

import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
from runner import DocumentError, Runner, blocks  # noqa: E402


class Documents(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="loam_runner_"))
        self.addCleanup(shutil.rmtree, self.root)
        self.log = []

    def run_document(self, text, **options):
        (self.root / "page.md").write_text(text)
        return Runner(self.root, log=self.log.append, **options).run("page.md")

    def assert_fails(self, text, *messages, **options):
        with self.assertRaises(DocumentError) as caught:
            self.run_document(text, **options)
        for part in messages:
            self.assertIn(part, str(caught.exception))

    def assert_gone(self, pid_file):
        """Asserts that the process whose id is in the file ends within a deadline. It may remain as a zombie."""
        pid = int((self.root / pid_file).read_text())
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return
            if state == "Z":
                return
            os.sched_yield()
        self.fail(f"process {pid} still runs")

    def test_runs_every_block_in_order_from_the_root(self):
        count = self.run_document("Text\n```sh\necho one >told\n```\n```c++\nint x;\n```\n~~~sh\necho two >>told\n~~~\n")
        self.assertEqual(count, 2)
        self.assertEqual((self.root / "told").read_text(), "one\ntwo\n")

    def test_a_failing_command_fails_with_place_and_output(self):
        self.assert_fails("\n\n```sh\necho said; exit 3\n```\n", "page.md:3", "exit code 3", "said")

    def test_a_failure_in_the_middle_of_a_block_or_pipe_counts(self):
        self.assert_fails("```sh\nfalse\ntrue\n```\n", "exit code 1")
        self.assert_fails("```sh\nfalse | cat\n```\n", "exit code 1")
        self.assert_fails("```sh\necho $no_such_variable\n```\n", "unbound")

    def test_tests_are_not_run_again(self):
        self.assertEqual(self.run_document("```sh\nmake test\n```\n```sh\necho x >told\nmake test\n```\n"), 1)
        self.assertTrue((self.root / "told").exists())

    def test_no_run_needs_a_reason(self):
        self.assertEqual(self.run_document("```sh no-run: needs two machines\nfalse\n```\n"), 0)
        self.assertIn("needs two machines", self.log[0])
        for info in ("no-run", "no-run:", "norun: x"):
            self.assert_fails(f"```sh {info}\nfalse\n```\n", "page.md:1")

    def test_other_names_of_the_shell_are_refused(self):
        self.assert_fails("```bash\ntrue\n```\n", "```sh")

    def test_an_open_block_is_refused(self):
        self.assert_fails("```sh\ntrue\n", "never closed")

    def test_a_fence_inside_a_longer_fence_is_text(self):
        self.assertEqual(blocks("page.md", "````md\n```sh\nfalse\n```\n````\n"), [])

    def test_a_hanging_command_is_ended_with_its_children(self):
        text = "```sh\nsleep 600 & echo $! >child\nwait\n```\n"
        self.assert_fails(text, "did not end within", timeout_s=1)
        self.assert_gone("child")

    def test_a_block_that_leaves_a_child_is_cleaned_up(self):
        self.assertEqual(self.run_document("```sh\nsleep 600 & echo $! >child\n```\n"), 1)
        self.assert_gone("child")

    def test_background_serves_the_blocks_after_it(self):
        text = "```sh background: ready\necho $$ >server; echo ready; exec sleep 600\n```\n```sh\nkill -0 $(cat server)\n```\n"
        self.assertEqual(self.run_document(text), 2)
        self.assert_gone("server")

    def test_background_that_dies_or_prints_nothing_fails(self):
        self.assert_fails("```sh background: ready\necho oh no; exit 4\n```\n", "ended with code 4", "oh no")
        self.assert_fails("```sh background: ready\nexec sleep 600\n```\n", "printed nothing", ready_s=0.2)
        # The second block waits until the process is a zombie. Otherwise the runner might check before it has ended.
        dies = ("```sh background: ready\necho $$ >dying; echo ready\n```\n"
                "```sh\nwhile grep -q 'State:.[^Z]' /proc/$(cat dying)/status; do sleep 0.01; done\n```\n")
        self.assert_fails(dies, "too early")


if __name__ == "__main__":
    unittest.main()
