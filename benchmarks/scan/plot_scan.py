#!/usr/bin/env python3
"""Plots the durations of the thesis's figures 5.1 and 5.2 from the JSON lines of `loam-bench scan --only thesis`.

    build/release/bin/loam-bench scan --only thesis --json thesis.jsonl
    benchmarks/scan/plot_scan.py thesis.jsonl docs/results/scan-durations.svg

Needs gnuplot, which scripts/setup does not install (Debian: gnuplot-nox).
"""

import json
import subprocess
import sys

SHARES = ("100", "50", "25", "12.5")
SCANS = (("log_clean", "log, clean", "#0060ad"), ("log_half_garbage", "log, half garbage", "#7fb0d6"),
         ("hash", "hash index", "#c0504d"), ("gets", "one get after another", "#999999"))
AROUND = (("garbage", "before"), ("during", "during"), ("compacted", "after"))

PLOT = """
set terminal svg size 1000,420 font "sans,12" background "white"
set output "{out}"
set multiplot layout 1,2
set style data histograms
set style histogram clustered gap 1
set style fill solid 0.9 noborder
set yrange [0:*]
set ylabel "milliseconds"
set grid ytics lc rgb "#dddddd"
set key bottom center outside horizontal
set title "Figure 5.1: {rows} M rows, one thread"
set xlabel "% of the rows returned"
$scans << EOD
{scans}
EOD
plot {series}
set title "Figure 5.2: around a compaction"
unset key
set xlabel ""
$around << EOD
{around}
EOD
plot $around using 2:xtic(1) lc rgb "#0060ad" notitle
unset multiplot
"""


def figures(path):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.startswith("{")]
    found = {row["figure"]: row for row in rows}
    return found


def value(found, name):
    if name not in found:
        sys.exit(f"plot_scan.py: the file lacks figure '{name}': create it by loam-bench scan --only thesis --json FILE")
    return found[name]["value"]


def script_of(found, out):
    lines = [" ".join([f'"{share}"'] + [f"{value(found, f'scan.fig51_{scan}_{share}_ms')}" for scan, _, _ in SCANS])
             for share in SHARES]
    series = ", ".join(f'$scans using {i + 2}:xtic(1) lc rgb "{color}" title "{title}"'
                       for i, (_, title, color) in enumerate(SCANS))
    around = [f'"{title}" {value(found, f"scan.fig52_{name}_ms")}' for name, title in AROUND]
    rows = found["scan.fig51_hash_100_ms"]["options"]["rows"] / 1e6
    return PLOT.format(out=out, rows=f"{rows:g}", scans="\n".join(lines), series=series, around="\n".join(around))


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    script = script_of(figures(sys.argv[1]), sys.argv[2])
    try:
        drawn = subprocess.run(["gnuplot"], input=script, text=True, check=False)
    except FileNotFoundError:
        sys.exit("plot_scan.py: gnuplot is not installed: apt-get install gnuplot-nox")
    if drawn.returncode != 0:
        sys.exit(f"plot_scan.py: gnuplot ended with exit code {drawn.returncode}; its messages are above")


if __name__ == "__main__":
    main()
