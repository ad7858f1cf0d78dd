"""Runs fuzz targets, starting from the inputs of fuzz_corpus, of tests/fuzz/corpus and of earlier runs.

    tests/fuzz/run.py [--seconds 60] [--jobs 2] [TARGET ...]
    tests/fuzz/run.py --replay FILE TARGET

The script keeps inputs that fail in build/fuzz/artifacts and prints the command that replays them. When you correct an
error, add the input to tests/fuzz/corpus/TARGET, and a test to the code.
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
INPUT_BYTES = 16384  # longest input that libFuzzer generates; the memory limits below fit it
RSS_MB = 1024
INPUT_SECONDS = 10  # an input that takes longer counts as a hang


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
        seed_folders = [folder for folder in (self.build / "seeds" / self.target, ROOT / "tests/fuzz/corpus" / self.target)
                        if folder.is_dir()]
        folders = [self.grown, *seed_folders]
        command = [self.build / "bin" / self.target, f"-max_total_time={self.arguments.seconds}",
                   f"-artifact_prefix={self.artifacts}/{self.target}-", f"-max_len={INPUT_BYTES}",
                   f"-rss_limit_mb={RSS_MB}", f"-malloc_limit_mb={RSS_MB // 4}", f"-timeout={INPUT_SECONDS}",
                   "-print_final_stats=1", "-use_value_profile=1"]
        words = ROOT / "tests/fuzz/words" / f"{self.target}.txt"
        if words.exists():
            command.append(f"-dict={words}")
        if self.arguments.fixed_seed:
            # A short run executes the same inputs every time, and keeps none.
            command.append("-seed=1")
            folders = seed_folders
        return [str(part) for part in [*command, *folders]]

    def run(self):
        """Runs the target. Returns true if no check failed."""
        begin = time.monotonic()
        with open(self.log, "wb") as log:
            environment = dict(os.environ, UBSAN_OPTIONS="print_stacktrace=1")
            code = subprocess.run(self.command(), stdout=log, stderr=log, env=environment, check=False).returncode
        text = self.log.read_text(errors="replace")
        runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
        coverage = re.findall(r"cov: (\d+)", text)
        print(f"{self.target}: {int(runs.group(1)) if runs else 0:,} inputs, coverage {coverage[-1] if coverage else 0}, "
              f"{time.monotonic() - begin:.0f} s{'' if code == 0 else ': FAILED'}", flush=True)
        if code != 0:
            self.explain(text)
        return code == 0

    def explain(self, text):
        reason = [line for line in text.splitlines()
                  if re.search(r"FAILED CHECK|runtime error|ERROR: |^SUMMARY|assertion", line)]
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
    parser.add_argument("--fixed-seed", action="store_true", help="run the same inputs each time and keep none")
    parser.add_argument("--replay", help="run only this input")
    parser.add_argument("targets", nargs="*", help="default: all targets")
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
