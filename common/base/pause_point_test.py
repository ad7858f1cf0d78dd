"""Tests of pause points from outside of a process.

ReleaseBuildTest compiles a call of Env::pause_point() as release builds do, where it leaves no code, and as all other
builds do, where it calls PausePoints. LoamPauseTest starts a process with LOAM_PAUSE."""

import os
import subprocess
import sys
import tempfile
import unittest

CALL = """
#include "common/base/env.h"
extern "C" void somewhere() { loam::Env::pause_point("base.release.nothing"); }
"""


def symbols(*flags):
    with tempfile.TemporaryDirectory() as folder:
        source, compiled = os.path.join(folder, "call.cc"), os.path.join(folder, "call.o")
        with open(source, "w", encoding="utf-8") as file:
            file.write(CALL)
        subprocess.run(["g++", "-std=gnu++20", "-mcx16", "-I.", "-c", *flags, source, "-o", compiled], check=True)
        with open(compiled, "rb") as file:
            names = subprocess.run(["nm", "-C", compiled], check=True, capture_output=True, text=True).stdout
            return names, file.read()


class ReleaseBuildTest(unittest.TestCase):
    def test_pause_point_leaves_no_code(self):
        for level in ("-O0", "-O3"):
            names, code = symbols(level)
            self.assertNotIn("PausePoints", names)
            if level != "-O0":
                self.assertNotIn(b"base.release.nothing", code)

    def test_other_builds_call_the_pause_points(self):
        names, code = symbols("-O2", "-DLOAM_ASSERTIONS=1")
        self.assertIn("PausePoints::act", names)
        self.assertIn(b"base.release.nothing", code)


class LoamPauseTest(unittest.TestCase):
    PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 and os.path.exists(sys.argv[1]) else None

    def start(self, pause):
        return subprocess.run([self.PROGRAM, "--gtest_filter=PausePoints.CallTheHook*"],
                              env={**os.environ, "LOAM_PAUSE": pause}, capture_output=True, text=True, check=False)

    def test_mistyped_list_ends_the_process_with_a_message(self):
        done = self.start("base.test.here=halt")
        self.assertEqual(done.returncode, 2)
        self.assertIn("LOAM_PAUSE: kInvalidArgument: pause point 'base.test.here=halt': unknown action 'halt'",
                      done.stderr)

    def test_kill_acts_and_says_where(self):
        done = self.start("base.test.here@2=kill")
        self.assertEqual(done.returncode, -9)
        self.assertIn("loam: paused at base.test.here\n", done.stderr)

    def test_name_that_is_not_passed_does_nothing(self):
        self.assertEqual(self.start("base.test.nowhere=kill").returncode, 0)


if __name__ == "__main__":
    unittest.main()
