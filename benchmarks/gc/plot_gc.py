#!/usr/bin/env python3
"""Plots put throughput over time with and without garbage collection, from the file of `loam-bench gc --series`.

    build/release/bin/loam-bench gc --quick --series windows.csv
    benchmarks/gc/plot_gc.py windows.csv docs/results/gc-windows.svg

Needs gnuplot, which scripts/setup does not install (Debian: gnuplot-nox). Draws the last turn in windows of 100 ms of
the wall clock.
"""

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

PLOT = """
set terminal svg size 900,360 font "sans,12" background "white"
set output "{out}"
set title "Puts in windows of 100 ms, a random half of the records rewritten"
set xlabel "seconds"
set ylabel "million puts a second"
set yrange [0:*]
set key bottom right
set grid ytics lc rgb "#dddddd"
plot "{without}" using 1:2 with lines lw 1.5 lc rgb "#999999" title "without collection, memory for everything", \\
     "{with_}" using 1:2 with lines lw 2 lc rgb "#0060ad" title "with collection, {memory:g} times the memory of the live data"
"""


def last_turn(rows, variant):
    """Returns the points (seconds, million puts a second) of the last turn of a variant."""
    mine = [r for r in rows if r["variant"] == variant and r["clock"] == "wall"]
    if not mine:
        sys.exit(f"plot_gc.py: no windows of the variant '{variant}' in the file")
    turn = max(int(r["turn"]) for r in mine)
    return [(float(r["seconds"]), float(r["puts_per_s"]) / 1e6) for r in mine if int(r["turn"]) == turn]


def memory_over_live(rows):
    """Returns the memory of the pool divided by the live data of the table with collection, which every row has."""
    try:
        return float(rows[0]["memory_over_live"])
    except KeyError:
        sys.exit("plot_gc.py: the file has no column memory_over_live: create it again by loam-bench gc --series")


def draw(script):
    try:
        drawn = subprocess.run(["gnuplot"], input=script, text=True, check=False)
    except FileNotFoundError:
        sys.exit("plot_gc.py: gnuplot is not installed: apt-get install gnuplot-nox")
    if drawn.returncode != 0:
        sys.exit(f"plot_gc.py: gnuplot ended with exit code {drawn.returncode}; its messages are above")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], newline="") as file:
        rows = list(csv.DictReader(file))
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for variant in ("with", "without"):
            paths[variant] = Path(folder) / variant
            points = last_turn(rows, variant)
            paths[variant].write_text("".join(f"{at} {rate}\n" for at, rate in points))
        script = PLOT.format(out=sys.argv[2], with_=paths["with"], without=paths["without"],
                             memory=memory_over_live(rows))
        draw(script)


if __name__ == "__main__":
    main()
