// The status page. It asks the API of its server every two seconds; tables and shards, whose replies are large, less often.

import {ApiError, get, post} from "./api.js";
import {Chart, LatencyChart, Samples} from "./charts.js";
import {bytes, count, duration, short, statistics, tableRows, words} from "./format.js";
import {List, column, element, numeric, setText} from "./list.js";
import {Latencies, Queries, SLOW_OPERATIONS} from "./open_work.js";

const POLL_MS = 2_000;
const MAX_WAIT_MS = 30_000;
const SLOW_POLLS = 8;  // polls between two of the tables and shards
const OLDEST_TRANSACTIONS = 50;
const NEARLY_FULL = 0.9;  // share of what clients may fill above which the page warns

const byId = (id) => document.getElementById(id);
const samples = new Map();  // name of a server → Samples
let shown = null;           // the sections of the kind of server, once it is known
let token = "";

function samplesOf(server) {
  if (!samples.has(server)) samples.set(server, new Samples());
  return samples.get(server);
}

async function addHistory(prefix, server) {
  const one = samplesOf(server);
  one.add(await get(`${prefix}History?after_ms=${one.newest}`));
}

function addSection(id, title) {
  const section = element("section", {id}, element("h2", {id: `${id}-title`, textContent: title}));
  section.setAttribute("aria-labelledby", `${id}-title`);
  byId("main").append(section);
  return section;
}

function addLinks() {
  for (const section of byId("main").querySelectorAll("section:not(#advice)")) {
    byId("sections").append(element("a", {href: `#${section.id}`, textContent: section.querySelector("h2").textContent}));
  }
}

function showTiles(tiles) {
  const list = byId("tiles");
  while (list.children.length < tiles.length) list.append(element("div", {}, element("dt"), element("dd")));
  tiles.forEach(([name, value, tone = ""], index) => {
    const [term, text] = list.children[index].children;
    setText(term, name);
    setText(text, value);
    text.className = `${value.length > 20 ? "long " : ""}${tone}`;
  });
}

function showAdvice(texts) {
  const list = byId("advice-list");
  byId("advice").hidden = texts.length === 0;
  const before = [...list.children].map((item) => item.textContent);
  if (before.join("\n") !== texts.join("\n")) list.replaceChildren(...texts.map((text) => element("li", {textContent: text})));
}

function showState(good, text) {
  setText(byId("state"), text);
  byId("state").className = `badge ${good ? "good" : "bad"}`;
}

const share = (used, limit) => `${bytes(used)} of ${bytes(limit)}${limit > 0 ? ` (${Math.round(100 * used / limit)} %)` : ""}`;

// Charts of the storage nodes' history, which both kinds of page show.
function nodeCharts(grid) {
  const add = (title, series, format) => new Chart(grid, title, series, format);
  return [
    add("Storage operations per second", [{name: "operations", label: "all"}, {name: "appends", label: "writes"}], short),
    add("Records scanned per second", [{name: "scan_records", label: "records"}], short),
    add("Memory in use", [{name: "memory_used_bytes", label: "records and indexes"},
                          {name: "query_memory_used_bytes", label: "queries"}], bytes),
    add("Network traffic per second", [{name: "bytes_in", label: "received"}, {name: "bytes_out", label: "sent"}], bytes),
    new LatencyChart(grid, "reads", "reads"),
    new LatencyChart(grid, "writes", "writes"),
  ];
}

// Tells whether clients have nearly filled a kind of memory of a node. A node refuses writes before the memory of records
// ends, and reports that limit; the other kinds have only one limit.
function nearlyFull(node, key) {
  const limit = node[`${key}_write_limit_bytes`] ?? node[`${key}_limit_bytes`];
  return node[`${key}_used_bytes`] > NEARLY_FULL * limit;
}

function memoryList(section) {
  const part = (title, key) => ({
    title, value: (row) => row[`${key}_used_bytes`] ?? -1,
    text: (row) => (row.uptime_ns === undefined ? row.error : share(row[`${key}_used_bytes`], row[`${key}_limit_bytes`])),
    tone: (row) => (nearlyFull(row, key) ? "bad" : ""),
  });
  return new List(section, {
    caption: "Memory of the storage nodes", empty: "No storage node is registered.",
    columns: [column("Node", "id"), part("Records and indexes", "memory"), part("Queries", "query_memory"),
              part("Undo information", "intent_memory"), numeric("Queries refused", "query_memory_refused")],
  });
}

function tableList(section) {
  return new List(section, {
    caption: "Tables and indexes, summed over the storage nodes that answer", filter: "Filter by name",
    empty: "There are no tables.", sort: 3, descending: true,
    columns: [
      column("Name", "name"), column("Kind", "kind"), numeric("Keys", "keys"), numeric("Log", "log_bytes", bytes),
      numeric("Garbage", "garbage_bytes", bytes), numeric("Hash index", "index_bytes", bytes), numeric("Reads", "gets"),
      numeric("Writes", "writes"), numeric("Conflicts", "conflicts"),
    ],
  });
}

const SUMMED = ["keys", "log_bytes", "garbage_bytes", "index_bytes", "gets", "writes", "conflicts"];

// Adds the rows of one node to the tables by id.
function addTables(tables, rows) {
  for (const row of rows) {
    if (!tables.has(row.table)) {
      tables.set(row.table, {name: row.name, kind: row.index_of ? `index of ${row.index_of}` : "table"});
    }
    const table = tables.get(row.table);
    for (const name of SUMMED) table[name] = (table[name] ?? 0) + row[name];
  }
}

function memoryAdvice(nodes) {
  return nodes.filter((node) => nearlyFull(node, "memory")).map((node) =>
    `The memory of storage node ${node.id} is nearly full: delete records, drop tables or end old transactions. ` +
    `It refuses writes beyond ${bytes(node.memory_write_limit_bytes ?? node.memory_limit_bytes)}.`);
}

class ClusterPage {
  constructor(changesAllowed) {
    const grid = byId("chart-grid");
    this.managerCharts = [
      new Chart(grid, "Transactions per second", [{name: "commits", label: "committed"}, {name: "aborts", label: "aborted"},
                                                  {name: "read_only_begins", label: "read-only"}], short),
      new Chart(grid, "Open", [{name: "open", label: "transactions"}, {name: "sessions", label: "sessions"}], short),
      new LatencyChart(grid, "begins", "begins"),
      new LatencyChart(grid, "commits and aborts", "completions"),
    ];
    this.charts = nodeCharts(grid);
    this.nodes = new List(addSection("nodes", "Storage nodes"), {
      caption: "Storage nodes", empty: "No storage node is registered. Start storage nodes with the address of this cluster.",
      columns: [
        column("Node", "id"), {...column("State", "state", words), tone: (row) => (row.state === "LIVE" ? "good" : "bad")},
        numeric("Incarnation", "incarnation"), numeric("Shards", "shards"), numeric("Sessions", "sessions"),
        numeric("Running for", "uptime_ns", duration), column("Address", "address"), column("Administration", "admin_address"),
        column("Error", "error"),
      ],
    });
    this.shards = addSection("shards", "Shards");
    this.shardText = element("p", {className: "faint"});
    this.shards.append(this.shardText);
    this.shardList = new List(this.shards, {
      caption: "Virtual shards by owner", empty: "The shards are not dealt out yet.",
      columns: [column("Owner", "owner"), numeric("Shards", "shards"), column("Share", "share"),
                {...column("State", "state", words), tone: (row) => (row.state === "LIVE" ? "good" : "bad")}],
    });
    this.memory = memoryList(addSection("memory", "Memory"));
    this.tables = tableList(addSection("tables", "Tables"));
    this.sessions = new List(addSection("sessions-list", "Sessions"), {
      caption: "Sessions of clients", empty: "No client is connected.",
      columns: [
        column("Session", "id"), column("Client", "name"), column("State", "state", words),
        column("Connected", "connected", (value) => (value ? "yes" : "no")), numeric("Silent for", "silent_ns", duration),
        numeric("Open transactions", "open"), column("Ended because", "end"),
        ...(changesAllowed ? [{title: "Action", action: {
          title: "End session", run: (row) => confirmEnd(row), offered: (row) => row.state === "OPEN" && !row.recoverer,
        }}] : []),
      ],
    });
    this.transactions = new List(addSection("transactions", "Oldest transactions"), {
      caption: "Open transactions and snapshots, the oldest first", empty: "No transaction is open.", sort: 4, descending: true,
      columns: [
        column("Transaction", "id", (id) => (id === 0 ? "without id" : String(id))), column("Session", "session"),
        column("Client", "client"), column("Kind", "kind", words), numeric("Snapshot age", "snapshot_age_ns", duration),
        column("State", "state", words), numeric("Newer ids", "newer_ids"),
      ],
    });
    this.queries = new Queries(addSection("queries", "Running queries"));
    this.latencies = new Latencies(addSection("latencies", "Latencies"));
    this.lastNodes = [];
  }

  async poll(slow) {
    const [health, all, nodes, sessions, transactions, slowOperations] = await Promise.all([
      get("Health"), get("Statistics"), get("ListNodes"), get("ListSessions"),
      get(`ListTransactions?max=${OLDEST_TRANSACTIONS}`), get(SLOW_OPERATIONS), addHistory("", "manager"),
    ]);
    const manager = statistics(all.statistics);
    this.lastNodes = await Promise.all((nodes.nodes ?? []).map((node) => this.askNode(node)));
    this.show(health, all, manager, sessions.sessions ?? [], transactions.transactions ?? []);
    const answering = this.lastNodes.filter((node) => node.uptime_ns !== undefined);
    this.queries.update(answering.map((node) => ({node: node.id, reply: node.queries})));
    this.latencies.update([{server: "commit manager", reply: slowOperations},
                           ...answering.map((node) => ({server: `node ${node.id}`, reply: node.slowOperations}))]);
    if (slow) await this.pollSlow();
  }

  async askNode(node) {
    const result = {...node, id: Number(node.id), incarnation: Number(node.incarnation)};
    if (!node.live || !node.admin_address) return {...result, error: node.live ? "no administration" : words(node.state)};
    try {
      const prefix = `node/${node.id}/`;
      const [own, queries, slowOperations] = await Promise.all([
        get(`${prefix}Statistics?without_tables=true`), get(`${prefix}ListQueries`), get(prefix + SLOW_OPERATIONS),
        addHistory(prefix, prefix),
      ]);
      const numbers = statistics(own.statistics);
      if (numbers.node !== result.id) throw new ApiError(0, `${node.admin_address} is another server, seen from here`);
      return {...numbers, ...result, queries, slowOperations};
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      return {...result, error: error.message};
    }
  }

  async pollSlow() {
    const [catalog, map] = await Promise.all([get("ListTables?with_system=true"), get("GetShardMap")]);
    const tables = new Map();
    for (const table of catalog.tables ?? []) {
      tables.set(Number(table.id), {name: table.name, kind: words(table.system ? "system" : table.kind)});
      for (const index of table.indexes ?? []) {
        const state = index.damaged ? ", damaged" : index.ready ? "" : ", not ready";
        tables.set(Number(index.id), {name: index.name, kind: `index of ${table.name}${state}`});
      }
    }
    await Promise.all(this.lastNodes.filter((node) => node.uptime_ns !== undefined).map(async (node) => {
      try {
        addTables(tables, tableRows((await get(`node/${node.id}/Statistics`)).tables));
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;  // the list of nodes shows errors of a node
      }
    }));
    this.tables.update([...tables.values()]);
    this.showShards(map);
  }

  show(health, all, manager, sessions, transactions) {
    const live = this.lastNodes.filter((node) => node.live);
    const answering = this.lastNodes.filter((node) => node.uptime_ns !== undefined);
    const sum = (name) => answering.reduce((total, node) => total + node[name], 0);
    setText(byId("title"), "Loam cluster");
    showState(health.ready, health.ready ? "serving" : "not serving");
    showTiles([
      ["Cluster", manager.cluster],
      ["Storage nodes live", `${live.length} of ${this.lastNodes.length}`, live.length < this.lastNodes.length ? "bad" : ""],
      ["Memory of records", share(sum("memory_used_bytes"), sum("memory_limit_bytes"))],
      ["Sessions", count(manager.sessions)],
      ["Open transactions", count(manager.open)],
      ["Oldest snapshot", duration(manager.oldest_snapshot_age_ns)],
      ["Tables and indexes", count(manager.tables)],
      ["Epoch", count(manager.epoch)],
      ["Data address", health.address],
    ]);
    showAdvice([
      ...(manager.not_serving ? [`The commit manager does not serve: ${manager.not_serving}.`] : []),
      ...(all.refused_nodes ?? []).map((node) => `Storage node at ${node.address} is refused and keeps its records: ${node.reason}.`),
      ...this.lastNodes.filter((node) => node.state === "LOST").map((node) =>
        `Storage node ${node.id} has restarted and is empty: its ${node.shards} shards refuse requests. ` +
        `The command "loam node accept-loss ${node.id}" continues without their records.`),
      ...this.lastNodes.filter((node) => node.state === "UNREACHABLE").map((node) =>
        `Storage node ${node.id} at ${node.address} does not answer: check its process and its log.`),
      ...memoryAdvice(answering),
    ]);
    this.managerCharts.forEach((chart) => chart.update([samplesOf("manager")]));
    const sources = this.lastNodes.map((node) => samplesOf(`node/${node.id}/`));
    this.charts.forEach((chart) => chart.update(sources));
    this.nodes.update(this.lastNodes);
    this.memory.update(this.lastNodes);
    this.sessions.update(sessions.map((session) => ({
      ...session, id: Number(session.id), silent_ns: Number(session.silent_ns), open: Number(session.open),
    })));
    this.transactions.update(transactions.map((one) => ({
      ...one, id: Number(one.id), session: Number(one.session), snapshot_age_ns: Number(one.snapshot_age_ns),
      newer_ids: Number(one.newer_ids),
    })));
  }

  showShards({version, owners = []}) {
    const counts = new Map();
    for (const owner of owners) counts.set(owner, (counts.get(owner) ?? 0) + 1);
    const states = new Map(this.lastNodes.map((node) => [String(node.id), node.state]));
    setText(this.shardText, `${count(owners.length)} virtual shards, version ${version} of the map.`);
    this.shardList.update([...counts].map(([owner, shards]) => ({
      owner: owner === "0" ? "not dealt out" : `node ${owner}`, shards,
      share: `${(100 * shards / owners.length).toFixed(1)} %`, state: states.get(owner) ?? "NO_OWNER",
    })));
  }
}

class NodePage {
  constructor() {
    this.charts = nodeCharts(byId("chart-grid"));
    this.memory = memoryList(addSection("memory", "Memory"));
    this.tables = tableList(addSection("tables", "Tables"));
    this.queries = new Queries(addSection("queries", "Running queries"));
    this.latencies = new Latencies(addSection("latencies", "Latencies"));
  }

  async poll(slow) {
    const [health, all, queries, slowOperations] = await Promise.all([
      get("Health"), get("Statistics?without_tables=true"), get("ListQueries"), get(SLOW_OPERATIONS), addHistory("", "node"),
    ]);
    const node = statistics(all.statistics);
    node.id = node.node;
    setText(byId("title"), `Loam storage node ${node.node}`);
    showState(health.in_service, health.in_service ? "serving" : "not serving");
    showTiles([
      ["Cluster", node.cluster || "not registered"],
      ["Incarnation", count(node.incarnation)],
      ["Running for", duration(node.uptime_ns)],
      ["Commit manager", node.connected ? "connected" : "not connected", node.connected ? "" : "bad"],
      ["Lease", node.lease_holds ? "held" : "run out", node.lease_holds ? "" : "bad"],
      ["Sessions", count(node.sessions)],
      ["Undo entries", count(node.intents)],
      ["Scans ended", count(node.scans)],
    ]);
    showAdvice([
      ...(node.memory_lost ? [`The records of this node are lost. The command "loam node accept-loss ${node.node}" continues without them.`] : []),
      ...(node.manager_refusal ? [`This node refuses the commit manager: ${node.manager_refusal}.`] : []),
      ...memoryAdvice([node]),
    ]);
    this.charts.forEach((chart) => chart.update([samplesOf("node")]));
    this.memory.update([node]);
    this.queries.update([{node: node.id, reply: queries}]);
    this.latencies.update([{server: `node ${node.id}`, reply: slowOperations}]);
    if (!slow) return;
    const tables = new Map();
    addTables(tables, tableRows((await get("Statistics")).tables));
    this.tables.update([...tables.values()]);
  }
}

function confirmEnd({id, name, open}) {
  setText(byId("confirm-text"), `Session ${id} of the client ${name || "without a name"} ends as if its lease had run out. ` +
    `Its ${count(open)} open transactions are rolled back.`);
  byId("confirm").dataset.session = id;
  byId("confirm-error").hidden = true;
  byId("token").value = token;
  byId("confirm").showModal();
}

byId("confirm-cancel").addEventListener("click", () => byId("confirm").close());
byId("confirm-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  token = byId("token").value;
  try {
    await post("EndSession", {session: byId("confirm").dataset.session}, token);
    byId("confirm").close();
  } catch (error) {
    if (error.status === 401) token = "";
    setText(byId("confirm-error"), error.message);
    byId("confirm-error").hidden = false;
  }
});

async function begin() {
  const index = await get("");
  const manager = index.reads.includes("ListNodes");
  shown = manager ? new ClusterPage(index.changes_allowed && index.changes.includes("EndSession")) : new NodePage();
  addLinks();
}

const visible = () => new Promise((resolve) => {
  if (!document.hidden) resolve();
  else document.addEventListener("visibilitychange", resolve, {once: true});
});

// Polls while the page is visible. After a failure the pauses grow, up to MAX_WAIT_MS.
async function pollForEver() {
  let failures = 0;
  for (let polls = 0; ; ++polls) {
    await visible();
    try {
      if (shown === null) await begin();
      await shown.poll(failures > 0 || polls % SLOW_POLLS === 0);
      failures = 0;
      byId("unreachable").hidden = true;
      setText(byId("updated"), `updated ${new Date().toLocaleTimeString()}`);
      document.documentElement.dataset.polls = polls + 1;
    } catch (error) {
      ++failures;
      showState(false, "no answer");
      setText(byId("unreachable"), `The server does not answer as expected; the page shows its last answers and asks again. (${error.message})`);
      byId("unreachable").hidden = false;
    }
    const wait = Math.min(POLL_MS * 2 ** failures, MAX_WAIT_MS);
    await new Promise((resolve) => setTimeout(resolve, failures === 0 ? POLL_MS : wait));
  }
}

pollForEver();
