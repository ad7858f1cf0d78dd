"""Tests scripts/check: plants a violation of every rule in a small tree. The check must find it, and nothing else."""

import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from checks.tree import Tree  # noqa: E402

GOOD_SOURCE = """#include <atomic>

namespace loam {

std::atomic<int> counter{0};

int next() {
  // Relaxed: nothing is published through the counter; sleep_for( in a comment is no sleep.
  return counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace loam
"""


class Planted(unittest.TestCase):
    """A temporary tree that all checks accept until a test plants a violation."""

    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="loam_checks_"))
        self.addCleanup(shutil.rmtree, self.root)
        for config in (".clang-format", ".clang-tidy"):
            shutil.copy(ROOT / config, self.root / config)
        self.plant("common/base/counter.cc", GOOD_SOURCE)
        self.plant("docs/guide.md", "# Guide\n\n## The way in\n\nRead [on](#the-way-in), or `common/base/counter.cc`.\n")

    def plant(self, path, text):
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def findings(self, name):
        return sorted(importlib.import_module(f"checks.{name}").run(Tree(self.root)))

    def assert_clean(self, name):
        self.assertEqual([str(f) for f in self.findings(name)], [])

    def assert_found(self, name, *places):
        """Asserts that the check finds exactly these (path, line)."""
        found = self.findings(name)
        self.assertEqual([(f.path, f.line) for f in found], sorted(places), [str(f) for f in found])


class TextualChecks(Planted):
    def test_a_good_tree_is_clean(self):
        for name in ("names", "lengths", "words", "atomics", "sleeps", "layers", "links", "events", "claims", "idioms", "spelling",
                     "python", "commits", "formatting"):  # fmt: skip
            with self.subTest(name):
                self.assert_clean(name)

    def test_events(self):
        self.plant("common/base/disk.cc", 'void f() {\n  log_warning("disk.full", "full");\n'
                   '  log({level, "grpc.message", text});\n}\n')
        rows = "| `disk.full` | warning | It is full. | Make room. |\n| `grpc.message` | any | It speaks. | Read. |\n"
        self.plant("docs/log-events.md", rows)
        self.assert_clean("events")
        self.plant("docs/log-events.md", rows + "| `disk.gone` | info | It is gone. | Buy one. |\n")
        self.assert_found("events", ("docs/log-events.md", 3))
        self.plant("docs/log-events.md", rows + rows)
        self.assert_found("events", ("docs/log-events.md", 3), ("docs/log-events.md", 4))
        self.plant("docs/log-events.md", rows.replace("warning", "error"))
        self.assert_found("events", ("docs/log-events.md", 1))
        self.plant("docs/log-events.md", rows.splitlines()[0])
        self.assert_found("events", ("common/base/disk.cc", 3))
        self.plant("docs/log-events.md", rows)
        self.plant("common/base/other.cc", 'void g(LogEvent event) {\n  log_error("disk.full", "again");\n'
                   "  log_info(event, text);\n  log_info(name, text);\n}\n")
        self.assert_found("events", ("common/base/other.cc", 2), ("common/base/other.cc", 4))

    def test_names(self):
        for path in ("common/base/BadName.cc", "common/base/utils.h", "common/net/common.h", "common/misc/thing.h",
                     "common/base/log_v2.cc", "common/base/late.cpp", "docs/a b.md"):  # fmt: skip
            self.plant(path, "")
        self.assert_found(
            "names", ("common/base/BadName.cc", 0), ("common/base/utils.h", 0), ("common/net/common.h", 0),
            ("common/misc", 0), ("common/base/log_v2.cc", 0), ("common/base/late.cpp", 0), ("docs/a b.md", 0),
        )  # fmt: skip

    def test_length(self):
        self.plant("common/base/brief.cc", "\n" * 600)
        self.plant("common/base/endless.cc", "\n" * 601)
        self.assert_found("lengths", ("common/base/endless.cc", 0))

    def test_long_lines(self):
        long = "word " * 24 + "words"  # 125 columns
        self.plant("common/base/drawing.h", f"// {long}\n// short\n")
        self.plant("docs/page.md", f"# Page\n\n{long}\n\n| {long} |\n\n```\n{long}\n```\n{'x' * 130}\n\n* {long}\n")
        self.assert_found("lengths", ("common/base/drawing.h", 1), ("docs/page.md", 3), ("docs/page.md", 12))

    def test_commits(self):
        def git(*arguments):
            who = ("-c", "user.name=n", "-c", "user.email=e")
            return subprocess.run(["git", *who, *arguments], cwd=self.root, check=True, capture_output=True, text=True).stdout

        git("init", "-q")
        git("add", ".")
        git("commit", "-q", "-m", "Everything that was wrong before the record.")
        self.plant("scripts/checks/commits_since.txt", git("rev-parse", "HEAD"))
        good = ("base: count in one place", "common/base, docs: bring the counter home", "all: need no second count")
        bad = ("Count in one place", "base: counted twice", "base: adds a count", "base: the count", "cellar: count",
               "base: count " + "and count " * 7)  # fmt: skip
        for subject in good + bad:
            git("commit", "-q", "--allow-empty", "-m", subject, "-m", "A second place gave another number.")
        git("commit", "-q", "--allow-empty", "-m", "base: count without a reason")
        found = [finding.message.split('"')[1] for finding in self.findings("commits")]
        self.assertEqual(sorted(found), sorted([*(subject.strip() for subject in bad), "base: count without a reason"]))

    def test_words(self):
        self.plant("common/base/later.cc", "// TO" "DO: finish\nint x;  // X" "XX\n")
        self.plant("docs/where.md", "see /wo" "rk/main/file and https://deb.deb" "ian.org/debian\nor $HOME/work/file\n")
        self.assert_found("words", ("common/base/later.cc", 1), ("common/base/later.cc", 2),
                          ("docs/where.md", 1), ("docs/where.md", 1))  # fmt: skip

    def test_atomics(self):
        self.plant("common/base/head.h", "struct Head {\n  std::atomic<int> word_{0};\n  int plain_ = 0;\n};\n")
        self.plant(
            "common/base/head.cc",
            "void f(Head& head) {\n"
            "  head.word_.store(1);\n"  # 2: no order
            "  head.word_.compare_exchange_strong(\n      expected, g(std::memory_order_relaxed(), 1));\n"
            "  word_ = 3;\n"  # 5: an order unsaid
            "  ++word_;\n"  # 6
            "  plain_ = 4;\n"
            "  if (word_ == 3) return;\n"
            "  book.store(1);  // not atomic: a shop\n"
            "  std::atomic_thread_fence(std::memory_order_seq_cst);\n"  # 10
            "}\n",
        )
        self.assert_found("atomics", *(("common/base/head.cc", line) for line in (2, 5, 6, 10)))

    def test_sleeps(self):
        sleep = "std::this_thread::sleep_for(1ms);"
        self.plant("common/base/nap.cc", f"void nap() {{ {sleep} }}\n")  # no test
        self.plant("common/base/nap_test.cc", f"// {sleep}\n{sleep}\n{sleep}  // poll interval\nscheduler->sleep_for(10);\n::usleep(1);\n")
        self.plant("tests/integration/nap_test.py", "import time\ntime.sl" "eep(1)\n")
        self.assert_found("sleeps", ("common/base/nap_test.cc", 2), ("common/base/nap_test.cc", 5),
                          ("tests/integration/nap_test.py", 2))  # fmt: skip

    def test_layers(self):
        self.plant("common/base/up.cc", '#include <atomic>\n#include "common/base/up.h"\n#include "common/net/socket.h"\n')
        self.plant("common/net/down.cc", '#include "common/base/up.h"\n#include "common/schema/row.h"\n')
        self.plant("common/net/down_test.cc", '#include "common/testing/random.h"\n#include "common/schema/row.h"\n')
        self.plant("common/net/up.cc", "#include <loam/storage/node.h>\n")
        self.plant("client-lib/src/session.cc", '#include "common/net/down.h"\n#include <loam/bdtree/tree.h>\n'
                   '#include <loam/client/session.h>\n#include "bdtree/src/leaf.h"\n#include <loam/commit/manager.h>\n'
                   '#include "common/testing/random.h"\n#include "../src/own.h"\n#include "own.h"\n')  # fmt: skip
        self.plant("client-lib/src/own.h", "")
        self.plant("bdtree/src/tree/leaf.cc", '#include <loam/bdtree/tree.h>\n#include "common/schema/row.h"\n'
                   '#include "common/rpc/channel.h"\n#include <loam/client/session.h>\n')  # fmt: skip
        # Code that tests share may use test code; product code may not.
        self.plant("storage-node/testing/fixture.h", '#include "common/testing/random.h"\n')
        self.plant("storage-node/src/log/page_test.cc", '#include "storage-node/testing/fixture.h"\n')
        self.plant("storage-node/src/log/page.cc", '#include "storage-node/testing/fixture.h"\n')
        # Two folders that include each other, through a third one. Includes of tests do not count.
        self.plant("storage-node/src/one/a.h", '\n#include "storage-node/src/two/b.h"\n')
        self.plant("storage-node/src/two/b.h", '#include "storage-node/src/zoo/c.h"\n')
        self.plant("storage-node/src/zoo/c.h", '#include "storage-node/src/one/a.h"\n')
        self.plant("storage-node/src/two/b_test.cc", '#include "storage-node/src/log/page.h"\n')
        self.plant("storage-node/src/log/page.h", '#include "storage-node/src/two/b.h"\n')
        self.plant("deploy/cli/src/dev.cc", "#include <loam/storage/node.h>\n#include <loam/commit/manager.h>\n")
        self.plant("benchmarks/index.cc", '#include "storage-node/src/index/hash_index.h"\n')
        self.assert_found("layers", ("common/base/up.cc", 3), ("common/net/down.cc", 2), ("common/net/up.cc", 1),
                          ("storage-node/src/log/page.cc", 1),
                          ("storage-node/src/one/a.h", 2), ("storage-node/src/two/b.h", 1),
                          ("bdtree/src/tree/leaf.cc", 3), ("bdtree/src/tree/leaf.cc", 4),
                          *(("client-lib/src/session.cc", line) for line in (4, 5, 6, 7, 8)))  # fmt: skip

    def test_links(self):
        self.plant("docs/page.md", "[a](guide.md) [b](gone.md)\n[c](guide.md#the-way-in)\n[d](guide.md#no-way)\n"
                   "`common/base/gone.cc`\n```\n[e](in-a-fence.md)\n```\n[f](https://example.invalid/x)\n[g](/guide.md)\n")  # fmt: skip
        self.plant("common/base/told.h", "// docs/guide.md tells, docs/unwritten.md does not\n")
        self.assert_found("links", ("common/base/told.h", 1), ("docs/page.md", 1), ("docs/page.md", 3),
                          ("docs/page.md", 4), ("docs/page.md", 9))  # fmt: skip

    def test_excerpts(self):
        self.plant("common/base/add.h", "int one();\nint two();\n")
        self.plant("docs/page.md", "```cpp from: common/base/add.h\nint two();\n```\n```cpp from: common/base/add.h\n"
                   "int three();\n```\n```cpp from: common/base/gone.h\nint two();\n```\n")  # fmt: skip
        self.assert_found("links", ("docs/page.md", 4), ("docs/page.md", 7))

    def test_names_behind_a_link(self):
        self.plant("common/base/lamp.h", "class Lamp {\n  void light();\n};\n")
        self.plant("common/base/lamp.cc", "void Lamp::light() {}\nvoid quench() {}\n")
        self.plant("common/base/other.cc", "void flicker() {}\n")
        self.plant("docs/page.md", "[lamp.h](../common/base/lamp.h): `Lamp::light`,\n  `quench`; [o](../common/base/other.cc).\n"
                   "[lamp.cc](../common/base/lamp.cc): `light`, `flicker`.\n")  # fmt: skip
        self.assert_found("links", ("docs/page.md", 3))

    def test_named_tests(self):
        self.plant("common/base/counter_test.cc", "TEST(Counter, Counts) {}\nTEST_F(\n    CounterTest, Wraps) {}\n")
        self.plant("tests/checks/count_test.py", "class CountTest:\n    def test_it(self):\n        pass\n")
        self.plant("docs/page.md", "`Counter.Counts`, `CounterTest.Wraps`, `CountTest.test_it`\n`Counter.Guesses`\n"
                   "`CountTest.test_that`\n`README.md`, `ctest -R Counter.Guesses`\n")  # fmt: skip
        self.assert_found("links", ("docs/page.md", 2), ("docs/page.md", 3))

    def test_named_identifiers(self):
        self.plant("common/base/gate.h", "class Gate {\n  void enter_by();\n  static constexpr int kMostWaiting = 1;\n};\n")
        self.plant("common/base/gate.cc", 'options.number("most-waiting", 1); app.add_flag("--calm");\n')
        self.plant("docs/page.md", "`Gate::enter_by`, `enter_by()`, `kMostWaiting`, `Gate`, `loam demo --calm --most-waiting 2`\n"
                   "`Gate::leave`\n`leave_now()`\n`kMostInside`\n`Admission`\n`AdmissionGate`\n`--most-inside`\n"  # 2 to 7
                   "`loam demo --quiet`\n`ctest --rerun-failed`, `make Nothing`, LostGate\n```\n`LostGate`\n```\n")  # 8
        self.plant("docs/results/gates.md", "`AdmissionGate`\n")
        self.assert_found("links", *(("docs/page.md", line) for line in range(2, 9)))

    def test_idioms(self):
        self.plant("common/base/riddle.cc", "// It was seen so\n" "// many times.\nint so_many = 0;\nint what" "ever = 0;\n")
        self.plant("common/net/text.cc", 'const char* kText = "who' 'ever asks";\n')
        self.plant("docs/riddle.md", "For wa" "nt of memory, no" "body writes.\n")
        self.plant("scripts/checks/idioms_ceilings.txt", "common/base 0\ncommon/net 1\ndocs 3\n")
        self.assert_found("idioms", ("common/base", 0), ("docs", 0))
        found = {f.path: f.message for f in self.findings("idioms")}
        self.assertIn("common/base/riddle.cc:1 'so" " many'", found["common/base"])
        self.assertIn("fewer than the ceiling of 3", found["docs"])

    def test_ceilings_of_idioms_only_fall(self):
        idioms = importlib.import_module("checks.idioms")
        ceilings = self.root / "scripts/checks/idioms_ceilings.txt"
        self.plant("docs/riddle.md", "Who" "ever reads this, what" "ever it says.\n")
        idioms.record(Tree(self.root))
        self.assertEqual(ceilings.read_text(encoding="utf-8"), "docs 2\n")
        self.plant("docs/riddle.md", "Who" "ever reads this.\n")
        self.plant("common/base/riddle.cc", "// What" "ever.\n")
        idioms.record(Tree(self.root))
        self.assertEqual(ceilings.read_text(encoding="utf-8"), "docs 1\n")
        self.assert_found("idioms", ("common/base", 0))

    def test_claims(self):
        self.plant("docs/page.md", "InfiniBand comes\nlater.\n\n* Indexes are\n  not yet built.\n* There is no SQL yet.\n\n"  # 1, 5, 6
                   "| replay | later |\n| moves | partly: by hand |\n\n## Promised, and not yet\n\n"  # 8, 9, 11
                   "Joins will be added.\n\nOne thread, for now.\n\nRoles are planned.\n\nJoins have yet to come.\n")  # 13 to 19
        self.plant("docs/plain.md", "Every later snapshot; an epoch later.\nA node that comes later gets none.\n"
                   "Nothing was sent yet. It prints `not yet built`. The open are not yet complete.\nNothing waits, yet it ends.\n\n"
                   "```\nSQL comes later\n```\n")
        for dated in ("CHANGELOG.md", "docs/decisions/0001-x.md", "docs/results/x.md", "common/base/notes.h"):
            self.plant(dated, "// Scans come later.\n")
        self.assert_found("claims", *(("docs/page.md", line) for line in (1, 5, 6, 8, 9, 11, 13, 15, 17, 19)))

    def test_claims_that_have_become_false(self):
        self.plant("common/base/sql.h", "// replicas, sharded\nclass SqlParser {};\nconst char* joined = \"Joins\";\n")
        self.plant("docs/page.md", "SQL comes later. <!-- absent: SqlParser -->\n\n"  # 1: it is there
                   "* Replicas and joins come later. <!-- absent: Replica* joins sharded sql/ common/base/sql.cc -->\n"
                   "* There is no SQL yet. <!-- absent:\n  sql* -->\n"  # 4
                   "| SQL | <!-- absent: docs/ common/base/sql.h --> |\n"  # 6, twice: a statement without such words
                   "| moves | later <!-- absent: --> |\n"  # 7: names nothing
                   "* Roles come later. <!-- absent: Client::watch --roles -->\n")  # 8, twice: would never be found
        self.assert_found("claims", ("docs/page.md", 1), ("docs/page.md", 4), ("docs/page.md", 6), ("docs/page.md", 6),
                          ("docs/page.md", 7), ("docs/page.md", 8), ("docs/page.md", 8))  # fmt: skip

    def test_spelling(self):
        self.plant("docs/typo.md", "All is well.\nThis was rec" "ieved.\n")
        self.assert_found("spelling", ("docs/typo.md", 2))

    def test_python(self):
        self.plant("tests/run.py", "import os\n\n\ndef run():\n    return given\n")
        self.plant("tests/tool", "#!/usr/bin/env python3\nprint(missing)\n")
        self.plant("tests/broken.py", "def run(:\n")
        self.assert_found("python", ("tests/broken.py", 1), ("tests/run.py", 1), ("tests/run.py", 5), ("tests/tool", 2))

    def test_formatting(self):
        self.plant("common/base/ugly.cc", "int  main( ) { return 0 ; }\n")
        self.assert_found("formatting", ("common/base/ugly.cc", 1))


class Linted(Planted):
    """A tree with compile commands, and with its own record of clean contents."""

    def setUp(self):
        super().setUp()
        for planted in self.root.rglob("*.cc"):
            planted.unlink()  # each source of these tests has a compile command
        self.remember_in(self.root / "build/cache")

    def remember_in(self, cache):
        environment = mock.patch.dict(os.environ, {"XDG_CACHE_HOME": str(cache)})
        environment.start()
        self.addCleanup(environment.stop)
        self.memory = cache / "loam/tidy"

    def configure(self, *paths):
        entries = [
            {
                "directory": str(self.root),
                "file": str(self.root / path),
                "command": f"c++ -std=c++20 -Wconversion -Werror -I{self.root} -c {self.root / path}",
            }
            for path in paths
        ]
        self.plant("build/lint/compile_commands.json", json.dumps(entries))


class Tidy(Linted):
    def test_finds_breaches_and_remembers_clean_sources(self):
        self.plant("common/base/name.h", "#pragma once\ninline int good_name() { return 1; }\n")
        self.plant("common/base/name.cc", '#include "common/base/name.h"\nint twice() { return 2 * good_name(); }\n')
        self.configure("common/base/name.cc")
        self.assert_clean("tidy")
        remembered = set(self.memory.iterdir())
        self.assertEqual(len(remembered), 1)
        self.assert_clean("tidy")
        self.assertEqual(set(self.memory.iterdir()), remembered)

        # A change of only a header lints the source that includes it again.
        self.plant("common/base/name.h", "#pragma once\ninline int good_name() { return 1; }\ninline int BadName() { return 1; }\n")
        self.assert_found("tidy", ("common/base/name.h", 3))
        self.assert_found("tidy", ("common/base/name.h", 3))  # a source with findings is not remembered as clean

    def test_remembers_for_all_clones_and_for_a_month(self):
        other = self.root / "build/other"
        self.remember_in(other)
        self.plant("common/base/fine.cc", "int fine() { return 1; }\n")
        self.configure("common/base/fine.cc")
        self.assert_clean("tidy")
        self.setUp()  # a tree elsewhere
        self.remember_in(other)
        self.plant("common/base/fine.cc", "int fine() { return 1; }\n")
        self.configure("common/base/fine.cc")
        with mock.patch("checks.tidy._lint", side_effect=AssertionError("looked at again")):
            self.assert_clean("tidy")
        (known,) = self.memory.iterdir()
        os.utime(known, (0, 0))
        with mock.patch("checks.tidy._lint", side_effect=AssertionError("looked at again")):
            self.assertRaisesRegex(AssertionError, "looked at again", self.findings, "tidy")

    def test_ignores_clang_warnings_and_slow_code_of_tests(self):
        slow = "#include <vector>\nstd::vector<int> f() {\n  std::vector<int> v;\n  for (int i = 0; i < 9; ++i) v.push_back(i);\n  return v;\n}\n"
        self.plant("common/base/slow.cc", slow)
        self.plant("common/base/slow_test.cc", slow)
        self.plant("common/base/sign.cc", "unsigned f(int x) {\n  unsigned y = x;\n  return y;\n}\n")
        self.configure("common/base/slow.cc", "common/base/slow_test.cc", "common/base/sign.cc")
        self.assert_found("tidy", ("common/base/slow.cc", 4))

    def test_code_that_does_not_compile_is_a_finding(self):
        self.plant("common/base/broken.cc", "int f() { return nowhere_declared; }\n")
        self.configure("common/base/broken.cc")
        self.assert_found("tidy", ("common/base/broken.cc", 1))


    def test_a_source_without_a_compile_command_is_a_finding(self):
        self.plant("common/base/known.cc", "int known() { return 1; }\n")
        self.plant("common/base/forgotten.cc", "int forgotten() { return 1; }\n")
        self.plant("client-lib/example/example.cc", "int example() { return 1; }\n")
        self.configure("common/base/known.cc")
        self.assert_found("tidy", ("common/base/forgotten.cc", 0))


class TidySinceACommit(Linted):
    """Tests which sources are linted if the record names a commit at which the whole tree was clean."""

    def setUp(self):
        super().setUp()
        self.plant(".gitignore", "/build/\n")
        self.plant("common/base/name.h", "int name();\n")
        self.plant("common/base/user.h", '#include "common/base/name.h"\n')
        self.plant("common/base/user.cc", '#include "common/base/user.h"\n')
        self.plant("common/base/other.cc", "int other() { return 1; }\n")
        self.sources = {"common/base/user.cc", "common/base/other.cc"}
        self.configure(*sorted(self.sources))
        self.git("init", "-q")
        self.commit()
        importlib.import_module("checks.tidy").record(Tree(self.root))
        self.forget()

    def git(self, *arguments):
        identity = ("-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", self.root, *identity, *arguments], check=True, stdout=subprocess.DEVNULL)

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "change")

    def forget(self):
        """Clears the record that all clones share, so that it does not influence these tests."""
        for known in self.memory.iterdir():
            known.unlink()

    def looked_at(self):
        self.forget()
        with mock.patch("checks.tidy._lint", return_value=set()) as lint:
            importlib.import_module("checks.tidy").run(Tree(self.root))
        return {call.args[1] for call in lint.call_args_list}

    def test_unchanged_tree_lints_nothing(self):
        self.assertEqual(self.looked_at(), set())
        self.commit()  # the record itself
        self.assertEqual(self.looked_at(), set())

    def test_changed_header_lints_the_sources_that_reach_it(self):
        self.plant("common/base/name.h", "int name(int n);\n")
        self.assertEqual(self.looked_at(), {"common/base/user.cc"})
        self.commit()
        self.assertEqual(self.looked_at(), {"common/base/user.cc"})

    def test_changed_docstring_lints_nothing(self):
        self.plant("common/base/name.h", "/// Returns the name.\n///\n/// Any thread.\nint name();  ///< not null\n")
        self.assertEqual(self.looked_at(), set())
        self.commit()
        self.assertEqual(self.looked_at(), set())
        self.plant("common/base/name.h", "/// Returns the name.\nint name();  ///< NOLINT\n")
        self.assertEqual(self.looked_at(), {"common/base/user.cc"})
        self.plant("common/base/name.h", "// The name.\nint name();\n")
        self.assertEqual(self.looked_at(), {"common/base/user.cc"})

    def test_docstrings_are_no_part_of_a_remembered_content(self):
        self.plant("common/base/name.h", "int name(int n);\n")
        self.assertEqual(self.looked_at(), {"common/base/user.cc"})
        importlib.import_module("checks.tidy").run(Tree(self.root))
        self.plant("common/base/name.h", "/// Returns the name.\nint name(int n);\n")
        with mock.patch("checks.tidy._lint", side_effect=AssertionError("looked at again")):
            self.assert_clean("tidy")

    def test_changed_proto_lints_the_sources_that_include_its_code(self):
        self.plant("common/base/proto/loam/sent.proto", 'syntax = "proto3";\n')
        self.plant("common/base/other.cc", '#include <loam/sent.grpc.pb.h>\nint other() { return 1; }\n')
        self.commit()
        with mock.patch("checks.tidy._lint", return_value=set()):
            importlib.import_module("checks.tidy").record(Tree(self.root))
        self.plant("common/base/proto/loam/sent.proto", 'syntax = "proto3";\nmessage Sent {}\n')
        self.assertEqual(self.looked_at(), {"common/base/other.cc"})

    def test_new_source_is_linted(self):
        self.plant("common/base/new.cc", "int fresh() { return 1; }\n")
        self.configure("common/base/new.cc", *sorted(self.sources))
        self.assertEqual(self.looked_at(), {"common/base/new.cc"})

    def test_wrong_record_lints_every_source(self):
        record = self.root / "scripts/checks/lint_clean.txt"
        right = record.read_text(encoding="utf-8")
        for wrong in ("", "0" * 40 + right[40:], right.replace("LLVM version ", "LLVM version 0")):
            record.write_text(wrong, encoding="utf-8")
            self.assertEqual(self.looked_at(), self.sources)
        record.write_text(right, encoding="utf-8")
        self.assertEqual(self.looked_at(), set())
        self.plant("common/.clang-tidy", "Checks: -*\n")
        self.assertEqual(self.looked_at(), self.sources)

    def test_uncommitted_tree_is_not_recorded(self):
        self.plant("common/base/other.cc", "int other() { return 2; }\n")
        with self.assertRaisesRegex(RuntimeError, "uncommitted changes"):
            importlib.import_module("checks.tidy").record(Tree(self.root))

    def test_findings_are_not_recorded(self):
        self.plant("common/base/other.cc", "int BadName() { return 2; }\n")
        self.commit()
        with self.assertRaisesRegex(RuntimeError, "1 findings"):
            importlib.import_module("checks.tidy").record(Tree(self.root))


class Program(Planted):
    def test_every_check_has_a_test(self):
        import importlib.machinery
        import importlib.util

        loader = importlib.machinery.SourceFileLoader("check", str(ROOT / "scripts/check"))
        program = importlib.util.module_from_spec(importlib.util.spec_from_loader("check", loader))
        loader.exec_module(program)
        planted = pathlib.Path(__file__).read_text(encoding="utf-8")
        for name in program.CHECKS:
            self.assertRegex(planted, rf'(assert_found|findings)\(\s*"{name}"', name)
            self.assertTrue(importlib.import_module(f"checks.{name}").WHAT)


if __name__ == "__main__":
    unittest.main()
