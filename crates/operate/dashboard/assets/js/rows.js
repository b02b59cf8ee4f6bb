// A table of which only the visible rows are there: the API sends them in parts, as somebody scrolls.

import { h, replace, announce } from "./dom.js";
import { failure } from "./parts.js";
import * as format from "./format.js";

const PART = 100;
const BEFORE = 10;

/**
 * `columns`: name, class, cell(row), sort. `load(offset, limit, signal)` answers with `items` and `total`.
 * `noun`: what one row is and what several are, for the count.
 */
export function rows({ caption, columns, load, height = 37, noun = ["row", "rows"], signal, sort, onsort }) {
  const body = h("tbody");
  const above = h("tr", { class: "space", "aria-hidden": "true" }, h("td"));
  const below = h("tr", { class: "space", "aria-hidden": "true" }, h("td"));
  const grid = h("table", { class: "rows" }, h("caption", { class: "hidden" }, caption), h("thead", {}, heads(columns, sort, onsort)), body);
  const scroll = h("div", { class: "window", tabindex: "0", role: "group", "aria-label": caption }, grid);
  const note = h("p", { class: "quiet count" }, "Loading…");
  const element = h("div", { class: "rows-of" }, note, scroll);

  let parts = new Map();
  let stale = new Set();
  let total = null;
  let asked = null;
  let pending = 0;

  function range() {
    const first = Math.max(0, Math.floor(scroll.scrollTop / height) - BEFORE);
    const shown = Math.ceil((scroll.clientHeight || 600) / height) + 2 * BEFORE;
    return [first, Math.min(total ?? shown, first + shown)];
  }

  function draw() {
    const [first, end] = range();
    const focused = document.activeElement?.closest?.("tr")?.dataset.at;
    above.firstChild.style.height = `${first * height}px`;
    below.firstChild.style.height = `${Math.max(0, (total ?? 0) - end) * height}px`;
    const shown = [];
    for (let at = first; at < end; at += 1) {
      const row = parts.get(Math.floor(at / PART))?.[at % PART];
      shown.push(line(row, at));
    }
    body.replaceChildren(above, ...shown, below);
    grid.setAttribute("aria-rowcount", String((total ?? 0) + 1));
    if (focused !== undefined) body.querySelector(`tr[data-at="${focused}"] a`)?.focus({ preventScroll: true });
  }

  function line(row, at) {
    const attributes = { "data-at": at, "aria-rowindex": at + 2 };
    if (!row) return h("tr", { ...attributes, class: "loading" }, h("td", {}, "…"));
    return h("tr", attributes, columns.map((column, place) => cell(column, place, row)));
  }

  async function fetchPart(part) {
    pending += 1;
    try {
      const answer = await load(part * PART, PART, asked.signal);
      parts.set(part, answer.items);
      stale.delete(part);
      total = answer.total;
      const text = total === 0 ? `No ${noun[1]}.` : format.count(total, ...noun);
      note.textContent = text;
      announce(text);
    } catch (error) {
      if (asked.signal.aborted) return;
      total = total ?? 0;
      if (error.kind === "not-found") {
        total = 0;
        parts.clear();
      }
      replace(note, failure(error));
    } finally {
      pending -= 1;
    }
    draw();
    want();
  }

  function want() {
    if (pending > 1) return;
    const [first, end] = range();
    for (let part = Math.floor(first / PART); part <= Math.floor(Math.max(first, end - 1) / PART); part += 1) {
      if (!parts.has(part) || stale.has(part)) {
        if (total !== null && total > 0 && part * PART >= total) continue;
        if (total === 0 && part > 0) continue;
        if (total === 0 && parts.has(part) && !stale.has(part)) continue;
        if (loading.has(part)) continue;
        loading.add(part);
        fetchPart(part).finally(() => loading.delete(part));
        if (pending > 1) return;
      }
    }
  }
  const loading = new Set();

  /** Asks anew: from the top, or, after a change, for what is visible. */
  function reload(fromTop = false) {
    if (fromTop) {
      asked?.abort();
      asked = new AbortController();
      loading.clear();
      parts = new Map();
      stale = new Set();
      total = null;
      scroll.scrollTop = 0;
    } else {
      const [first, end] = range();
      const near = (part) => part * PART < end && (part + 1) * PART > first;
      for (const part of [...parts.keys()]) near(part) ? stale.add(part) : parts.delete(part);
    }
    want();
  }

  let frame = 0;
  scroll.addEventListener("scroll", () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw();
      want();
    });
  }, { passive: true });
  scroll.addEventListener("keydown", (event) => step(event, scroll, height));
  signal?.addEventListener("abort", () => asked?.abort());
  reload(true);
  return { element, reload };
}

/** One cell; a text that does not fit stands in its title. */
function cell(column, place, row) {
  const content = column.cell(row);
  const attributes = { class: column.class, title: typeof content === "string" ? content : null };
  return place === 0 ? h("th", { ...attributes, scope: "row" }, content) : h("td", attributes, content);
}

function heads(columns, sort, onsort) {
  const head = (column) => {
    const attributes = { scope: "col", class: column.class };
    if (!column.sort) return h("th", attributes, column.name);
    const chosen = column.sort === sort;
    const press = () => onsort(column.sort);
    return h("th", { ...attributes, "aria-sort": chosen ? "ascending" : "none" }, h("button", { type: "button", class: "sort", onclick: press }, column.name, chosen ? h("span", { "aria-hidden": "true" }, " ↓") : null));
  };
  return h("tr", { "aria-rowindex": 1 }, columns.map(head));
}

/** The arrows lead from the link of one row to that of the next. */
function step(event, scroll, height) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const row = event.target.closest?.("tr[data-at]");
  if (!by || !row) return;
  event.preventDefault();
  const at = Number(row.dataset.at) + by;
  const next = scroll.querySelector(`tr[data-at="${at}"] a`);
  if (!next) return;
  next.focus({ preventScroll: true });
  const top = at * height;
  if (top < scroll.scrollTop) scroll.scrollTop = top;
  else if (top + 2 * height > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = top + 2 * height - scroll.clientHeight;
}
