// A choice of how far back a list goes. The choice stays while a page is open.

import { h } from "./dom.js";

const RANGES = [["", "any time"], ["5", "last 5 minutes"], ["60", "last hour"], ["1440", "last 24 hours"]];
const chosen = new Map();

/** The control, and whether a time (RFC 3339 or milliseconds) is within what is chosen. */
export function timeRange(id, onchange) {
  const choose = (event) => {
    chosen.set(id, event.target.value);
    onchange();
  };
  const select = h("select", { id, onchange: choose }, RANGES.map(([value, text]) => h("option", { value, selected: value === (chosen.get(id) ?? "") }, text)));
  const within = (at) => {
    const minutes = Number(chosen.get(id) || Infinity);
    return Date.now() - new Date(at).getTime() <= minutes * 60_000;
  };
  return { control: h("div", { class: "field" }, h("label", { for: id }, "Time"), select), within };
}
