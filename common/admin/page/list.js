// A table of which one page of rows is in the document, so that 10,000 rows cost no more than 25.

import {count} from "./format.js";

const PAGE = 25;

// Columns of the rows' member `key`. A row without it shows a dash.
export const column = (title, key, text = (value) => String(value), more = {}) =>
  ({title, value: (row) => row[key], text: (row) => (row[key] === undefined ? "–" : text(row[key])), ...more});
export const numeric = (title, key, text = count) => column(title, key, text, {
  numeric: true, value: (row) => row[key] ?? -1,
});

export function element(name, properties = {}, ...children) {
  const {dataset, ...rest} = properties;
  const result = Object.assign(document.createElement(name), rest);
  Object.assign(result.dataset, dataset);
  result.append(...children);
  return result;
}

export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function compare(left, right) {
  return typeof left === "string" ? left.localeCompare(right, "en", {numeric: true}) : left - right;
}

// columns: [{title, value(row), text(row), numeric, tone(row), action: {title, run(row), offered(row)}}]. The first column
// names the row. `filter` is the label of the filter field; without it there is none.
export class List {
  constructor(section, {caption, columns, filter, sort = 0, descending = false, empty}) {
    this.columns = columns;
    this.sort = sort;
    this.descending = descending;
    this.empty = empty;
    this.rows = [];
    this.page = 0;
    this.needle = "";
    this.shownRows = [];
    this.range = element("p", {className: "faint"});
    this.range.setAttribute("role", "status");
    this.previous = element("button", {type: "button", textContent: "Previous"});
    this.next = element("button", {type: "button", textContent: "Next"});
    this.previous.addEventListener("click", () => this.turn(-1));
    this.next.addEventListener("click", () => this.turn(1));
    const tools = element("div", {className: "tools"});
    if (filter) tools.append(this.filterField(section, filter));
    tools.append(this.range, this.previous, this.next);
    this.headers = columns.map((column, index) => this.header(column, index));
    this.body = element("tbody");
    const table = element("table", {}, element("caption", {textContent: caption}),
                          element("thead", {}, element("tr", {}, ...this.headers)), this.body);
    const scroll = element("div", {className: "scroll", tabIndex: 0}, table);
    scroll.setAttribute("role", "group");
    scroll.setAttribute("aria-label", caption);
    section.append(tools, scroll);
  }

  filterField(section, label) {
    const id = `${section.id}-filter`;
    const input = element("input", {type: "search", id, autocomplete: "off", spellcheck: false});
    input.addEventListener("input", () => {
      this.needle = input.value.trim().toLowerCase();
      this.page = 0;
      this.show();
    });
    const labelled = element("label", {htmlFor: id, textContent: `${label} `});
    labelled.append(input);
    return labelled;
  }

  header(column, index) {
    const cell = element("th", {scope: "col", className: column.numeric ? "number" : ""});
    if (column.action) {
      cell.textContent = column.title;
      return cell;
    }
    const button = element("button", {type: "button", textContent: column.title});
    button.addEventListener("click", () => {
      this.descending = this.sort === index ? !this.descending : Boolean(column.numeric);
      this.sort = index;
      this.page = 0;
      this.show();
    });
    cell.append(button);
    return cell;
  }

  turn(by) {
    this.page += by;
    this.show();
  }

  update(rows) {
    this.rows = rows;
    this.show();
  }

  show() {
    const {value} = this.columns[this.sort];
    const sign = this.descending ? -1 : 1;
    const name = this.columns[0].text;
    const found = this.rows.filter((row) => !this.needle || name(row).toLowerCase().includes(this.needle));
    found.sort((left, right) => sign * compare(value(left), value(right)));
    this.page = Math.max(0, Math.min(this.page, Math.ceil(found.length / PAGE) - 1));
    const start = this.page * PAGE;
    this.shownRows = found.slice(start, start + PAGE);
    this.headers.forEach((cell, index) => {
      if (index === this.sort) cell.setAttribute("aria-sort", this.descending ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    });
    const paged = this.rows.length > PAGE;
    for (const control of [this.range, this.previous, this.next]) control.hidden = !paged;
    this.previous.disabled = this.page === 0;
    this.next.disabled = start + PAGE >= found.length;
    const numbers = new Intl.NumberFormat("en");
    setText(this.range, found.length === 0 ? "nothing found" : `${numbers.format(start + 1)} to ` +
        `${numbers.format(start + this.shownRows.length)} of ${numbers.format(found.length)}`);
    this.showRows();
  }

  // Changes cells in place, so that a button keeps the focus of the keyboard.
  showRows() {
    this.body.querySelector(".empty")?.closest("tr").remove();
    while (this.body.rows.length > this.shownRows.length) this.body.lastElementChild.remove();
    while (this.body.rows.length < this.shownRows.length) this.addRow(this.body.rows.length);
    this.shownRows.forEach((row, index) => {
      const {cells} = this.body.rows[index];
      this.columns.forEach((column, at) => this.showCell(cells[at], column, row));
    });
    if (this.shownRows.length > 0) return;
    const text = this.rows.length > 0 ? "Nothing has this name." : this.empty;
    this.body.append(element("tr", {}, element("td", {className: "empty", colSpan: this.columns.length, textContent: text})));
  }

  addRow(index) {
    const cells = this.columns.map((column, at) => {
      const cell = element(at === 0 ? "th" : "td", {className: column.numeric ? "number" : ""});
      if (at === 0) cell.scope = "row";
      if (column.action) {
        const button = element("button", {type: "button"});
        button.addEventListener("click", () => column.action.run(this.shownRows[index]));
        cell.append(button);
      }
      return cell;
    });
    this.body.append(element("tr", {}, ...cells));
  }

  showCell(cell, column, row) {
    if (column.action) {
      cell.firstChild.hidden = !column.action.offered(row);
      setText(cell.firstChild, column.action.title);
      const label = `${column.action.title} ${this.columns[0].text(row)}`;
      if (cell.firstChild.getAttribute("aria-label") !== label) cell.firstChild.setAttribute("aria-label", label);
      return;
    }
    setText(cell, column.text(row));
    if (column.tone) cell.className = `${column.numeric ? "number " : ""}${column.tone(row)}`;
  }
}
