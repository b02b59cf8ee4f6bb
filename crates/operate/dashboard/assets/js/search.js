// The search of the frame: services, proxies and objects by a part of their names.

import { h, replace, debounce, announce } from "./dom.js";
import { get } from "./api.js";
import { link } from "./router.js";
import * as format from "./format.js";

const EACH = 6;
/** `VirtualService/shop/catalog`, as commands take it: the API has a space after the kind. */
const OBJECT = /^([A-Z][A-Za-z]+)\/(\S+)$/;

/** Each kind of result: its heading, and links of what is asked for. A failure of one leaves the others. */
const KINDS = [
  ["Services", async (text, signal) => rows(await get("services", { host: text, limit: EACH }, signal), (one) => [one.host, link(["services", one.host], { namespace: one.namespace }), one.namespace], link(["services"], { host: text }))],
  ["Proxies", async (text, signal) => rows(await get("proxies", { name: text, limit: EACH }, signal), (one) => [one.name, link(["proxies", one.connection]), one.state], link(["proxies"], { name: text }))],
  ["Objects", async (text, signal) => rows(await get("objects", { name: text.replace(OBJECT, "$1 $2"), limit: EACH }, signal), (one) => [one, link(["objects", one.replace(" ", "/")]), ""], undefined)],
  ["Problems", async (text, signal) => rows(await get("problems", { name: text, limit: EACH }, signal), (one) => [one.object || one.place, link(["problems"], { name: text }), one.severity], link(["problems"], { name: text }))],
];

const rows = ({ items, total }, row, all) => ({ items: items.map(row), left: total - items.length, all });

/** The field, and below it what is found. */
export function search() {
  const input = h("input", { id: "search", type: "search", placeholder: "Search", autocomplete: "off", spellcheck: "false", "aria-describedby": "search-found" });
  const found = h("div", { id: "search-found", class: "found", hidden: true });
  let asked = new AbortController();
  const close = () => {
    asked.abort();
    found.hidden = true;
  };
  const ask = async () => {
    asked.abort();
    asked = new AbortController();
    const stop = asked.signal;
    const text = input.value.trim();
    if (text.length < 2) {
      close();
      return;
    }
    const answers = await Promise.all(KINDS.map(([name, of]) => of(text, stop).then((answer) => ({ name, ...answer }), () => ({ name, items: [] }))));
    if (stop.aborted) return;
    const some = answers.filter(({ items }) => items.length > 0);
    replace(found, some.length ? some.map(group) : h("p", { class: "quiet" }, "Nothing has that in its name."));
    found.hidden = false;
    announce(some.length ? some.map(({ name, items, left }) => `${format.number(items.length + left)} ${name.toLowerCase()}`).join(", ") : "Nothing was found.");
  };
  const form = h("form", { class: "search", role: "search", "aria-label": "Everything", onsubmit: (event) => event.preventDefault() }, h("label", { for: "search", class: "hidden" }, "Search services, proxies and objects"), input, found);
  input.addEventListener("input", debounce(150, ask));
  form.addEventListener("submit", () => found.querySelector("a")?.click());
  form.addEventListener("keydown", (event) => keys(event, form, close));
  form.addEventListener("focusout", (event) => { if (!form.contains(event.relatedTarget)) found.hidden = true; });
  input.addEventListener("focus", () => { found.hidden = !found.firstChild || input.value.trim().length < 2; });
  window.addEventListener("hashchange", () => {
    close();
    input.value = "";
    replace(found);
  });
  return form;
}

/** Arrows lead from result to result, Escape closes them. */
function keys(event, form, close) {
  if (event.key === "Escape") {
    close();
    form.querySelector("input").focus();
    close();
    return;
  }
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by) return;
  const stops = [form.querySelector("input"), ...form.querySelectorAll("a")];
  const next = stops[stops.indexOf(document.activeElement) + by];
  if (!next) return;
  event.preventDefault();
  next.focus();
}

function group({ name, items, left, all }) {
  return h(
    "div",
    {},
    h("h3", {}, name),
    h("ul", { class: "lines" }, items.map(([text, href, note]) => h("li", {}, h("a", { href }, text), note && h("span", { class: "quiet" }, ` ${note}`)))),
    left > 0 && h("p", { class: "quiet" }, all ? h("a", { href: all }, `${format.number(left)} more`) : `${format.number(left)} more: type more of the name.`),
  );
}
