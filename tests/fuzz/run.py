"""Runs fuzz targets, from the inputs of fuzz_corpus, those of tests/fuzz/corpus, and what earlier runs have found.

    tests/fuzz/run.py [--seconds 60] [--jobs 2] [TARGET ...]
    tests/fuzz/run.py --replay FILE TARGET

Inputs that broke a target are kept in build/fuzz/artifacts, and how to replay them is printed. An input that has been
mended goes to tests/fuzz/corpus/TARGET, with a test of its own beside the code.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
INPUT_BYTES = 16384  # longest input that is made; memory is bounded for each byte of it
RSS_MB = 1024
INPUT_SECONDS = 10  # one input that takes longer hangs


class Run:
    """One run of one target, with its folders."""

    def __init__(self, build, target, arguments):
        self.build, self.target, self.arguments = build, target, arguments
        self.grown = build / "corpus" / target
        self.artifacts = build / "artifacts"
        self.log = build / "logs" / f"{target}.log"
        for folder in (self.grown, self.artifacts, self.log.parent):
            folder.mkdir(parents=True, exist_ok=True)

    def command(self):
        given = [folder for folder in (self.build / "seeds" / self.target, ROOT / "tests/fuzz/corpus" / self.target)
                 if folder.is_dir()]
        folders = [self.grown, *given]
        command = [self.build / "bin" / self.target, f"-max_total_time={self.arguments.seconds}",
                   f"-artifact_prefix={self.artifacts}/{self.target}-", f"-max_len={INPUT_BYTES}",
                   f"-rss_limit_mb={RSS_MB}", f"-malloc_limit_mb={RSS_MB // 4}", f"-timeout={INPUT_SECONDS}",
                   "-print_final_stats=1", "-use_value_profile=1"]
        words = ROOT / "tests/fuzz/words" / f"{self.target}.txt"
        if words.exists():
            command.append(f"-dict={words}")
        if self.arguments.fixed_seed:
            # A short test finds the same each time and leaves nothing behind.
            command.append("-seed=1")
            folders = given
        return [str(part) for part in [*command, *folders]]

    def run(self):
        """True if nothing broke."""
        begin = time.monotonic()
        with open(self.log, "wb") as log:
            environment = dict(os.environ, UBSAN_OPTIONS="print_stacktrace=1")
            code = subprocess.run(self.command(), stdout=log, stderr=log, env=environment, check=False).returncode
        text = self.log.read_text(errors="replace")
        runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
        coverage = re.findall(r"cov: (\d+)", text)
        print(f"{self.target}: {int(runs.group(1)) if runs else 0:,} inputs, coverage {coverage[-1] if coverage else 0}, "
              f"{time.monotonic() - begin:.0f} s{'' if code == 0 else ': BROKEN'}", flush=True)
        if code != 0:
            self.explain(text)
        return code == 0

    def explain(self, text):
        reason = [line for line in text.splitlines()
                  if re.search(r"BROKEN|runtime error|ERROR: |^SUMMARY|assertion", line)]
        print("\n".join("  " + line for line in reason[:8]))
        kept = re.search(r"Test unit written to (\S+)", text)
        if kept:
            print(f"  replay: python3 tests/fuzz/run.py --build {os.path.relpath(self.build)} --replay {kept.group(1)} {self.target}")
        print(f"  log: {self.log}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/fuzz")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--fixed-seed", action="store_true", help="the same inputs each time; keeps none")
    parser.add_argument("--replay", help="one input, and nothing else")
    parser.add_argument("targets", nargs="*", help="all of them if none is named")
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    targets = arguments.targets or sorted(path.name for path in (build / "bin").glob("*_fuzz"))
    missing = [target for target in targets if not (build / "bin" / target).exists()]
    if missing or not targets:
        sys.exit(f"not built: {' '.join(missing) or 'any fuzz target'}: cmake --preset fuzz && cmake --build --preset fuzz")
    if arguments.replay:
        sys.exit(subprocess.run([build / "bin" / targets[0], arguments.replay], check=False).returncode)
    if not (build / "seeds").is_dir() or not arguments.fixed_seed:
        subprocess.run([build / "bin/fuzz_corpus", build / "seeds"], check=True)
    print(f"{len(targets)} targets, {arguments.seconds} s each, {arguments.jobs} at a time; artefacts in {build}/artifacts")
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        whole = list(pool.map(lambda target: Run(build, target, arguments).run(), targets))
    sys.exit(0 if all(whole) else 1)


if __name__ == "__main__":
    main()
