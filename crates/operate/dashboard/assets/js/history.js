// What was published lately of something.

import { h, replace } from "./dom.js";
import { get } from "./api.js";
import * as format from "./format.js";
import { badge, section, table } from "./parts.js";
import { copyCommand } from "./command.js";
import { timeRange } from "./timerange.js";

const OUTCOMES = { "in-force": ["good", "in force"], pending: ["busy", "pending"], late: ["bad", "late"], refused: ["bad", "refused"], "not-watched": ["none", "not watched"] };

/** Colour and words for the outcome of a change; one that was accepted after a refusal says both. */
function became(row) {
  if (row.outcome === "in-force" && row.refused) return ["busy", "in force, refused at first"];
  return OUTCOMES[row.outcome] ?? ["none", row.outcome];
}

const COLUMNS = [
  { name: "Revision", class: "word", cell: (row) => row.revision },
  { name: "When", class: "word", cell: (row) => h("time", { datetime: row.at, title: format.time(row.at) }, format.ago(row.at)) },
  { name: "What", cell: (row) => row.summary },
  { name: "Became", class: "word", cell: (row) => badge(...became(row)) },
  { name: "Proxies", class: "right opt", cell: (row) => format.number(row.proxies) },
];

/** Changes that are asked for: a time range is chosen among them. */
const ASKED = 100;

/**
 * The last publications that concern something, with a choice of the time and the command that lists them. Answers with what
 * asks for them again: `load(query, words)`. The choice is left alone meanwhile.
 */
export function history(place, signal) {
  let items = [];
  let command = [];
  let shown = null;
  const list = h("div");
  const { control, within } = timeRange("history-time", () => draw());
  const draw = () => replace(list, table("Last changes", COLUMNS, items.filter((one) => within(one.at)), "No changes recorded."));
  return async (query, words) => {
    try {
      ({ items } = await get("history", { ...query, limit: ASKED }, signal));
    } catch {
      // The page is complete without it.
      return;
    }
    command = words;
    draw();
    if (!shown) {
      shown = section("History", h("div", { class: "filters" }, control, copyCommand(() => command)), list);
      replace(place, shown);
    }
  };
}
