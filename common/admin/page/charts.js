// The charts of the last minutes, drawn by uPlot from the samples of one or several servers.
/* global uPlot */

import {duration} from "./format.js";
import {element, setText} from "./list.js";

const MINUTES = 5;
const CARRY_S = 3;  // a server whose sample is late keeps its last value for this time
const HEIGHT = 180;

// Collects the samples of one server: per column a map from the second to a rate or a level.
export class Samples {
  constructor() {
    this.newest = 0;
    this.before = null;
    this.columns = new Map();
  }

  add({columns = [], samples = []}) {
    for (const {at_ms, numbers = []} of samples) {
      const at = Number(at_ms);
      columns.forEach(({name, kind}, index) => this.addNumber(name, kind, at, Number(numbers[index])));
      this.before = {at, numbers: Object.fromEntries(columns.map(({name}, index) => [name, Number(numbers[index])]))};
      this.newest = at;
    }
    const oldest = Math.floor(this.newest / 1000) - MINUTES * 60;
    for (const column of this.columns.values()) {
      for (const second of column.keys()) {
        if (second >= oldest) break;
        column.delete(second);
      }
    }
  }

  addNumber(name, kind, at, number) {
    if (!this.columns.has(name)) this.columns.set(name, new Map());
    const second = Math.floor(at / 1000);
    if (kind !== "COUNTER") {
      this.columns.get(name).set(second, number);
      return;
    }
    // A counter that has fallen belongs to a new process of the server.
    if (!this.before || at <= this.before.at || number < this.before.numbers[name]) return;
    this.columns.get(name).set(second, (number - this.before.numbers[name]) * 1000 / (at - this.before.at));
  }
}

// The values of several servers, combined in each second from `start` to `end`; null where no server has a sample.
function combined(sources, name, start, end, combine) {
  const result = new Array(end - start + 1).fill(null);
  for (const {columns} of sources) {
    const column = columns.get(name);
    if (!column) continue;
    let last = null;
    let age = Infinity;
    for (let at = start; at <= end; ++at) {
      age = column.has(at) ? 0 : age + 1;
      if (age === 0) last = column.get(at);
      if (age <= CARRY_S) result[at - start] = combine(result[at - start], last);
    }
  }
  return result;
}

// The indices of values without a neighbour, for which uPlot draws no line.
const lonely = (plot, series) => plot.data[series].flatMap((value, at, all) =>
  (value == null || all[at - 1] != null || all[at + 1] != null ? [] : [at]));

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// series: [{name, label}]. The value of several servers is their sum.
export class Chart {
  constructor(grid, title, series, format) {
    this.series = series;
    this.format = format;
    this.title = title;
    this.legends = series.map(({label}, index) => element("span", {className: `legend series-${index}`, textContent: label}));
    this.place = element("div", {className: "plot"});
    this.place.setAttribute("role", "img");
    this.figure = element("figure", {}, element("figcaption", {}, element("strong", {textContent: title}), ...this.legends),
                          this.place);
    grid.append(this.figure);
    this.data = [[], ...series.map(() => [])];
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  combine(before, value) {
    return (before ?? 0) + value;
  }

  scale() {
    return {range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1]};
  }

  size() {
    return {width: Math.max(this.place.clientWidth, 100), height: HEIGHT};
  }

  update(sources) {
    const end = Math.floor(Math.max(0, ...sources.map(({newest}) => newest)) / 1000);
    const start = end - MINUTES * 60;
    this.data = [Array.from({length: end - start + 1}, (_, index) => start + index),
                 ...this.series.map(({name}) => combined(sources, name, start, end, this.combine))];
    if (this.plot) this.plot.setData(this.data);
    else this.draw();
    this.describe(null);
  }

  // Shows the values at a point of time; at the newest one without an index.
  describe(index) {
    const texts = this.series.map(({label}, at) => {
      const values = this.data[at + 1];
      const value = values[index ?? values.length - 1];
      return `${label} ${value == null ? "–" : this.format(value)}`;
    });
    texts.forEach((text, at) => setText(this.legends[at], text));
    if (index === null) this.place.setAttribute("aria-label", `${this.title}, the last ${MINUTES} minutes; now ${texts.join(", ")}`);
  }

  draw() {
    this.plot?.destroy();
    const axis = {stroke: color("--faint"), grid: {stroke: color("--line"), width: 1}, ticks: {show: false}};
    this.plot = new uPlot({
      ...this.size(),
      legend: {show: false},
      cursor: {y: false, drag: {x: false, y: false}},
      scales: {y: this.scale()},
      axes: [axis, {...axis, size: 64, values: (_, values) => values.map((value) => (value === null ? "" : this.format(value)))}],
      series: [{}, ...this.series.map((_, index) => ({
        stroke: color(`--series-${index}`), width: 2, points: {show: false, filter: lonely}, dash: [[], [8, 4], [2, 3]][index],
      }))],
      hooks: {setCursor: [(plot) => this.describe(plot.cursor.idx ?? null)]},
    }, this.data, this.place);
  }
}

// The latencies of one group of operations, on a logarithmic scale. Quantiles of several servers have no sum, so the
// largest one is shown. The servers report 0 for a second without an operation, which is a gap.
export class LatencyChart extends Chart {
  constructor(grid, operations, group) {
    super(grid, `Latency of ${operations}`, [{name: `${group}_p50_ns`, label: "half below"},
                                             {name: `${group}_p99_ns`, label: "99 % below"},
                                             {name: `${group}_p999_ns`, label: "99.9 % below"}], duration);
  }

  combine(before, value) {
    return Math.max(before, value) || null;
  }

  scale() {
    return {distr: 3};
  }
}
