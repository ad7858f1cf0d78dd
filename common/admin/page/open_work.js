// The lists of latencies, slow operations and running queries. A row names its server, because the page of a cluster
// shows all servers.

import {duration, words} from "./format.js";
import {List, column, numeric} from "./list.js";

const LISTED = 50;  // slow operations of one server

// What a server of either kind is asked for.
export const SLOW_OPERATIONS = `SlowOperations?max=${LISTED}`;

const numbers = (object, names) => Object.fromEntries(names.map((name) => [name, Number(object[name])]));

export class Latencies {
  constructor(section) {
    this.latencies = new List(section, {
      caption: "Latencies of requests since the start of each server", empty: "No request has been answered yet.",
      columns: [
        column("Request", "kind", words), column("Server", "server"), numeric("Requests", "requests"),
        numeric("Mean", "mean_ns", duration), numeric("Half below", "p50_ns", duration),
        numeric("99 % below", "p99_ns", duration), numeric("99.9 % below", "p999_ns", duration),
      ],
    });
    this.slow = new List(section, {
      caption: "Operations of the last minute above 1 ms", empty: "No operation took longer than 1 ms.",
      sort: 2, descending: true,
      columns: [
        column("Operation", "kind", words), column("Server", "server"), numeric("Took", "total_ns", duration),
        column("Because of", "cause", words), column("Stages", "stages"), numeric("Age", "age_ns", duration),
        column("Session", "session"), column("Requests", "sequences"),
      ],
    });
  }

  // answers: [{server, reply of SlowOperations}]
  update(answers) {
    this.latencies.update(answers.flatMap(({server, reply}) => (reply.kinds ?? []).map((one) => ({
      ...one, server, ...numbers(one, ["requests", "mean_ns", "p50_ns", "p99_ns", "p999_ns"]),
    }))));
    this.slow.update(answers.flatMap(({server, reply}) => (reply.operations ?? []).map((one) => ({
      kind: one.kind, cause: one.cause, server, ...numbers(one, ["total_ns", "age_ns", "session"]),
      stages: (one.stages ?? []).map(({stage, ns}) => `${words(stage)} ${duration(Number(ns))}`).join(", "),
      sequences: one.first_sequence === one.last_sequence ? one.first_sequence : `${one.first_sequence} to ${one.last_sequence}`,
    }))));
  }
}

const SUMS = ["pages", "pages_done", "records", "rows", "unread_chunks"];
const LONGEST = ["age_ns", "waiting_ns"];
const STATES = ["QUEUED", "READING", "WAITING_FOR_CLIENT", "WAITING_FOR_MEMORY"];

export class Queries {
  constructor(section) {
    this.list = new List(section, {
      caption: "Scan queries that run; \"loam query cancel\" with the id ends one", empty: "No query runs.",
      sort: 4, descending: true,
      columns: [
        column("Query", "id"), column("Table", "table"), column("Session", "session"), column("Client", "address"),
        numeric("Running for", "age_ns", duration), column("State", "state", words),
        numeric("Waited", "waiting_ns", duration), numeric("Done", "done", (share) => `${Math.floor(100 * share)} %`),
        numeric("Records", "records"), numeric("Rows", "rows"), column("Storage nodes", "nodes"),
      ],
    });
  }

  // answers: [{node, reply of ListQueries}]. A query over several storage nodes has one row: sums, and the last state.
  update(answers) {
    const queries = new Map();
    for (const {node, reply} of answers) {
      for (const part of reply.queries ?? []) {
        if (!queries.has(part.id)) {
          queries.set(part.id, {...part, session: Number(part.session), nodes: [],
                                ...Object.fromEntries([...SUMS, ...LONGEST].map((name) => [name, 0]))});
        }
        const query = queries.get(part.id);
        query.nodes.push(node);
        for (const name of SUMS) query[name] += Number(part[name]);
        for (const name of LONGEST) query[name] = Math.max(query[name], Number(part[name]));
        if (STATES.indexOf(part.state) > STATES.indexOf(query.state)) query.state = part.state;
      }
    }
    this.list.update([...queries.values()].map((query) => ({
      ...query, nodes: query.nodes.join(", "), done: query.pages > 0 ? query.pages_done / query.pages : 0,
    })));
  }
}
