"""Tests that the environment seam costs nothing: hot code compiles to the same instructions with the seam and without
it.

The sources use `Env` for atomics, the clock, pause points, probes and rare branches (common/base/env.h). This test
makes a copy of the tree without the seam: atomics are `std::atomic`, the clock is called directly, and pause points,
probes and rare branches are removed. The test compiles both trees like a release, and compares every function of the
objects instruction by instruction. It also proves that the comparison finds a difference: a probe that calls a
function, and atomics that make a virtual call before each load.

    python3 tests/sim/seam_test.py [COMPILER]
"""

import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPILER = "c++"
# The flags of a release build, except link-time optimisation, which works across sources.
FLAGS = ["-std=gnu++20", "-O3", "-g0", "-fPIC", "-march=x86-64-v3", "-mcx16", "-fno-omit-frame-pointer", "-w"]

# The sources of the hot path of reads and writes, each with functions that its object must contain.
SOURCES = {
    "storage-node/src/index/hash_index.cc": ["HashIndex::find_candidate(", "HashIndex::confirm(", "HashIndex::insert("],
    "storage-node/src/version/chain.cc": ["Chain::newest("],
    "storage-node/src/version/transactional.cc": ["Table::get_at(", "Table::write_at("],
}
PLANTED_SOURCE = "storage-node/src/index/hash_index.cc"

WITHOUT_SEAM = """#pragma once
#include <atomic>
#include <cstdint>
#include <immintrin.h>
#include <time.h>
#include "common/base/word128.h"
namespace loam {
%s
inline uint64_t monotonic_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}
}
"""

# Pairs of a pattern for a use of the seam and the code that replaces it.
DIRECT = [
    (re.compile(r"\bEnv::Atomic<"), "std::atomic<"),
    (re.compile(r"\bEnv::AtomicWord128\b"), "AtomicWord128"),
    (re.compile(r"\bEnv::now_ns\(\)"), "monotonic_ns()"),
    (re.compile(r"\bEnv::spin_pause\(\)"), "_mm_pause()"),
    (re.compile(r"\bEnv::(?:pause_point|probe)\([^()]*\)"), "void()"),
    (re.compile(r"\bEnv::buggify\([^()]*\)"), "false"),
    (re.compile(r"\bEnv::kSimulated\b"), "false"),
]

# Differences that the test plants in env_real.h: (original, replacement).
PLANTED_DIFFERENCES = {
    "a probe that calls": ("static void probe(const char*) {}", "static void probe(const char* name);"),
    "a virtual call": ("  template <class T>\n  using Atomic = std::atomic<T>;",
                       "  struct Watcher {\n    virtual void look();\n  };\n  static Watcher* watcher;\n"
                       "  template <class T>\n  struct Atomic : std::atomic<T> {\n    using std::atomic<T>::atomic;\n"
                       "    T load(std::memory_order order) const {\n      watcher->look();\n"
                       "      return std::atomic<T>::load(order);\n    }\n  };"),
}


def copy_sources(target):
    for root in ("common", "storage-node"):
        for path in (ROOT / root).rglob("*"):
            if path.suffix in (".h", ".cc") and not path.name.endswith("_test.cc"):
                copy = target / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)


def remove_seam(tree):
    real = (tree / "common/base/env_real.h").read_text()
    dword = re.search(r"^class AtomicWord128 \{.*?^static_assert[^\n]*\n", real, re.M | re.S).group(0)
    for path in list(tree.rglob("*.h")) + list(tree.rglob("*.cc")):
        text = path.read_text()
        for pattern, direct in DIRECT:
            text = pattern.sub(direct, text)
        path.write_text(text)
    (tree / "common/base/env.h").write_text(WITHOUT_SEAM % dword)
    (tree / "common/base/env_real.h").unlink()


def compile_source(tree, source):
    """Compiles one source. Returns {function: its instructions without addresses}."""
    out = tree / (source.replace("/", "_") + ".o")
    subprocess.run([COMPILER, *FLAGS, f"-I{tree}", f"-I{tree}/storage-node/include", "-c", tree / source, "-o", out],
                   check=True)
    listing = subprocess.run(["objdump", "-d", "-r", "-C", "--no-show-raw-insn", out], check=True, capture_output=True,
                             text=True).stdout
    functions = {}
    body = None
    for line in listing.splitlines():
        if head := re.fullmatch(r"([0-9a-f]+) <(.*)>:", line):
            start = int(head.group(1), 16)
            body = functions.setdefault(head.group(2), [])
        elif line.startswith("Disassembly of section"):
            body = None
        elif line.strip() and body is not None:
            body.append(normalised(line, start))
    return functions


def normalised(line, start):
    """Returns an instruction or relocation with jumps relative to the first byte of the function. A call of another
    function is a relocation."""
    place, _, text = line.partition(":")
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"^([0-9a-f]+) <([^<>]|<.*>)*>$", "", text)
    if text.startswith("R_X86_64"):
        return text
    jump = re.match(r"(j\w+|call\w*) ([0-9a-f]+)\b", text)
    if jump:
        return f"{jump.group(1)} {int(jump.group(2), 16) - start:+d}"
    return re.sub(r"#.*$", "", text).strip()


def differences(a, b):
    return [name for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)]


class SeamTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        base = pathlib.Path(cls.folder.name)
        cls.trees = {name: base / f"tree{i}" for i, name in enumerate(["with", "without", *PLANTED_DIFFERENCES])}
        for name, tree in cls.trees.items():
            copy_sources(tree)
            if name in PLANTED_DIFFERENCES:
                original, replacement = PLANTED_DIFFERENCES[name]
                header = tree / "common/base/env_real.h"
                text = header.read_text()
                assert text.count(original) == 1, f"env_real.h does not contain exactly once: {original}"
                header.write_text(text.replace(original, replacement))
        remove_seam(cls.trees["without"])
        jobs = [(name, source) for name in ("with", "without") for source in SOURCES]
        jobs += [(name, PLANTED_SOURCE) for name in PLANTED_DIFFERENCES]
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            objects = pool.map(lambda job: compile_source(cls.trees[job[0]], job[1]), jobs)
            cls.objects = dict(zip(jobs, objects))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_the_seam_is_gone_from_the_other_tree(self):
        for source in SOURCES:
            self.assertNotIn("Env::", (self.trees["without"] / source).read_text(), source)

    def test_the_instructions_are_the_same(self):
        for source, functions in SOURCES.items():
            with_seam, without = self.objects["with", source], self.objects["without", source]
            for name in functions:
                found = [body for function, body in with_seam.items() if name in function]
                self.assertTrue(found, f"{source} has no function {name}")
                self.assertGreater(max(len(body) for body in found), 10, name)
            self.assertEqual(differences(with_seam, without), [], f"{source}: these functions differ")

    def test_planted_differences_are_found(self):
        without = self.objects["without", PLANTED_SOURCE]
        for name in PLANTED_DIFFERENCES:
            with self.subTest(name):
                self.assertNotEqual(differences(self.objects[name, PLANTED_SOURCE], without), [])


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-") and "/" in sys.argv[1]:
        COMPILER = sys.argv.pop(1)
    unittest.main(verbosity=2)
