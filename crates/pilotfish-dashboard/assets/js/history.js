// What was published lately of something.

import { h } from "./dom.js";
import { get } from "./api.js";
import * as format from "./format.js";
import { badge, table } from "./parts.js";

const OUTCOMES = { "in-force": ["good", "in force"], pending: ["busy", "pending"], late: ["bad", "late"], refused: ["bad", "refused"], "not-watched": ["none", "not watched"] };

const COLUMNS = [
  { name: "Revision", cell: (row) => row.revision },
  { name: "When", cell: (row) => h("time", { datetime: row.at, title: format.time(row.at) }, format.ago(row.at)) },
  { name: "What", cell: (row) => row.summary },
  { name: "Became", cell: (row) => badge(...(OUTCOMES[row.outcome] ?? ["none", row.outcome])) },
  { name: "Proxies", class: "right opt", cell: (row) => format.number(row.proxies) },
];

/** The last publications that concern something, as a table; `null` where none are kept. */
export async function history(query, signal) {
  try {
    const { items } = await get("history", { ...query, limit: 20 }, signal);
    return table("Last changes", COLUMNS, items, "Nothing of it changed since the oldest publication that is kept.");
  } catch {
    // The page is complete without it.
    return null;
  }
}
