// The charts of the last minutes, drawn by uPlot from the samples of one or several servers.
/* global uPlot */

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

// The sum over several servers in each second from `start` to `end`; null where no server has a sample.
function sums(sources, name, start, end) {
  const result = new Array(end - start + 1).fill(null);
  for (const {columns} of sources) {
    const column = columns.get(name);
    if (!column) continue;
    let last = null;
    let age = Infinity;
    for (let at = start; at <= end; ++at) {
      age = column.has(at) ? 0 : age + 1;
      if (age === 0) last = column.get(at);
      if (age <= CARRY_S) result[at - start] = (result[at - start] ?? 0) + last;
    }
  }
  return result;
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// series: [{name, label}]
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

  size() {
    return {width: Math.max(this.place.clientWidth, 100), height: HEIGHT};
  }

  update(sources) {
    const end = Math.floor(Math.max(0, ...sources.map(({newest}) => newest)) / 1000);
    const start = end - MINUTES * 60;
    this.data = [Array.from({length: end - start + 1}, (_, index) => start + index),
                 ...this.series.map(({name}) => sums(sources, name, start, end))];
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
      scales: {y: {range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1]}},
      axes: [axis, {...axis, size: 64, values: (_, values) => values.map((value) => this.format(value))}],
      series: [{}, ...this.series.map((_, index) => ({
        stroke: color(`--series-${index}`), width: 2, points: {show: false}, dash: [[], [8, 4], [2, 3]][index],
      }))],
      hooks: {setCursor: [(plot) => this.describe(plot.cursor.idx ?? null)]},
    }, this.data, this.place);
  }
}
