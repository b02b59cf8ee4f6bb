// What a proxy was sent: its resources by type, each as Envoy's YAML when it is opened.

import { h, replace } from "./dom.js";
import { get } from "./api.js";
import * as format from "./format.js";
import { failure, folded } from "./parts.js";
import { copyCommand } from "./command.js";
import { objectNames } from "./names.js";
import { filters } from "./filters.js";
import { yaml } from "./yaml.js";

const PART = 100;

/** Shows the resources of a proxy in a place. */
export function config(place, proxy, signal) {
  const types = proxy.types.map((type) => [type.name, `${type.name} (${format.number(type.resources)})`]);
  if (types.length === 0) {
    replace(place, h("p", { class: "quiet" }, "Nothing was sent to it."));
    return;
  }
  const list = h("div");
  let asked = new AbortController();
  const { form, values } = filters([
    { name: "section", label: "Type", options: types },
    { name: "resource", label: "Name contains", hint: "outbound|80||catalog" },
  ], () => show());
  signal.addEventListener("abort", () => asked.abort());

  async function show() {
    asked.abort();
    asked = new AbortController();
    const items = h("div");
    const more = h("div");
    replace(list, items, more);
    await part(items, more, 0, asked.signal);
  }

  async function part(items, more, offset, stop) {
    const query = { section: values.section || types[0][0], name: values.resource, offset, limit: PART };
    try {
      const answer = await get(`proxies/${encodeURIComponent(proxy.connection)}/config`, query, stop);
      items.append(...answer.resources.map((one) => resource(proxy, one, signal)));
      const next = offset + answer.resources.length;
      const left = answer.total - next;
      replace(
        more,
        answer.total === 0 && h("p", { class: "quiet" }, "None."),
        left > 0 && h("button", { type: "button", onclick: () => part(items, more, next, stop) }, `Show ${format.number(Math.min(PART, left))} more of ${format.number(answer.total)}`),
      );
    } catch (error) {
      if (!stop.aborted) replace(more, failure(error));
    }
  }

  form.append(copyCommand(() => ["config", proxy.name, values.section || types[0][0], values.resource]));
  replace(place, form, list);
  show();
}

function resource(proxy, one, signal) {
  const body = h("div");
  const element = h("details", { class: "resource" }, h("summary", {}, one.name), body);
  element.addEventListener("toggle", async () => {
    if (!element.open || body.firstChild) return;
    replace(body, h("p", { class: "quiet" }, "Loading…"));
    try {
      const query = { section: one.section, name: one.name, full: true };
      const answer = await get(`proxies/${encodeURIComponent(proxy.connection)}/config`, query, signal);
      const found = answer.resources.find((other) => other.name === one.name) ?? one;
      replace(body, details(found));
    } catch (error) {
      if (!signal.aborted) replace(body, failure(error));
    }
  });
  return element;
}

function details(one) {
  const text = one.resource === undefined || one.resource === null ? "" : yaml(one.resource);
  return [
    h("p", { class: "quiet" }, `version ${one.version}`),
    one.madeBy.length > 0 && h("div", {}, h("h3", {}, "Made by"), objectNames(one.madeBy)),
    one.leftOut?.length > 0 && h("div", {}, h("h3", {}, "Left out"), folded(one.leftOut)),
    h("pre", { class: "yaml", tabindex: "0", role: "group", "aria-label": `${one.name} as YAML` }, text),
  ];
}
