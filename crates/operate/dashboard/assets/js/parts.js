// Parts that several pages have.

import { h } from "./dom.js";
import * as format from "./format.js";
import { Failure } from "./api.js";
import { serviceHealth } from "./health.js";

const MARKS = { good: "●", busy: "◐", bad: "■", doubt: "▲", none: "○" };

/** A word with a mark whose colour and shape tell how it is. `how`: good, busy, bad, doubt, none. */
export function badge(how, text, title) {
  return h("span", { class: `badge ${how}`, title }, h("span", { class: "mark", "aria-hidden": "true" }, MARKS[how] ?? ""), text);
}

const STATES = { synced: "good", pending: "busy", rejected: "bad" };

export const state = (name) => badge(STATES[name] ?? "none", name);

/** How a service is, by its endpoints. */
export function health(service) {
  const { endpoints, healthy } = service;
  const text = endpoints === 0 ? "no endpoints" : `${format.number(healthy)} of ${format.number(endpoints)}`;
  return badge(serviceHealth(service), text);
}

/** How an endpoint is. */
export function endpointHealth(word) {
  const how = { Healthy: "good", Unhealthy: "bad", Draining: "doubt", Terminating: "doubt" }[word] ?? "none";
  return badge(how, word.toLowerCase());
}

/** A number with its name, that leads somewhere. */
export function figure(href, name, value, note, how = "none") {
  return h("a", { class: `figure ${how}`, href }, h("span", { class: "name" }, name), h("span", { class: "value" }, value), h("span", { class: "note" }, note));
}

/** A part of a page with a heading. */
export function section(title, ...children) {
  const id = `s-${title.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`;
  return h("section", { "aria-labelledby": id }, h("h2", { id }, title), children);
}

/** What went wrong, with what helps. */
export function failure(error) {
  if (!(error instanceof Failure)) {
    return h("div", { class: "failure", role: "alert" }, h("p", {}, String(error?.message ?? error)));
  }
  return h(
    "div",
    { class: "failure", role: "alert" },
    h("p", {}, error.message),
    error.hint && h("p", {}, error.hint),
    error.names.length > 0 && h("p", {}, "Did you mean ", error.names.join(", "), "?"),
  );
}

/** Texts, one below the other. */
export const lines = (texts) => h("ul", { class: "lines" }, texts.map((text) => h("li", {}, text)));

/** Items, one below the other, of which the first are shown and the others fold. */
export function folded(items, shown = 5) {
  if (items.length <= shown + 1) return lines(items);
  return [lines(items.slice(0, shown)), h("details", {}, h("summary", {}, `${format.number(items.length - shown)} more`), lines(items.slice(shown)))];
}

/** Names with values. */
export function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false);
  return h("dl", { class: "facts" }, known.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

/** A small table of rows that are all there. */
export function table(caption, columns, rows, empty = "None.") {
  if (rows.length === 0) return h("p", { class: "quiet" }, empty);
  const head = columns.map((column) => h("th", { scope: "col", class: column.class }, column.name));
  const cells = (row) => columns.map((column, at) => h(at === 0 ? "th" : "td", { scope: at === 0 ? "row" : null, class: column.class, "data-name": column.name }, column.cell(row)));
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    h("table", { class: "plain" }, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows.map((row) => h("tr", {}, cells(row))))),
  );
}
