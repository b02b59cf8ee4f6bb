// The connected proxies as a list.

import { h, replace, throttle } from "../dom.js";
import { get } from "../api.js";
import * as live from "../live.js";
import * as format from "../format.js";
import { amend, link } from "../router.js";
import { filters } from "../filters.js";
import { state } from "../parts.js";
import { rows } from "../rows.js";

const STATES = [["", "any"], ["rejected", "rejected"], ["pending", "pending"], ["synced", "synced"]];

/** What differs from `synced`, by type. */
function notSynced(types) {
  const some = types.filter((type) => type.state !== "synced");
  return some.map((type) => `${type.name} ${type.state}${type.lagSeconds === undefined ? "" : ` for ${format.span(type.lagSeconds)}`}`).join(", ");
}

const resources = (row) => row.types.map((type) => `${format.number(type.resources)} ${type.name}`).join(", ");

const COLUMNS = [
  { name: "Proxy", sort: "name", class: "w3", cell: (row) => h("a", { href: link(["proxies", row.connection]), title: row.connection }, row.name) },
  { name: "State", sort: "state", class: "w1", cell: (row) => state(row.state) },
  { name: "Kind", class: "w1 opt", cell: (row) => row.kind },
  { name: "Has", class: "opt w3", cell: (row) => h("span", { title: resources(row) }, notSynced(row.types) || resources(row)) },
  { name: "Revision", class: "opt w1 right", cell: (row) => row.revision },
  { name: "Version", class: "opt w2", cell: (row) => row.version },
  { name: "Connected", class: "opt w1", cell: (row) => h("time", { datetime: row.connectedAt, title: format.time(row.connectedAt) }, format.ago(row.connectedAt)) },
];

export function open({ root, query, signal, title }) {
  let list = null;
  let sort = query.get("sort") ?? "name";
  const { form, values } = filters([
    { name: "name", label: "Name contains", hint: "web-0" },
    { name: "namespace", label: "Namespace", hint: "shop" },
    { name: "state", label: "State", options: STATES },
  ], () => list.reload(true));
  const load = (offset, limit, stop) => get("proxies", { ...values, sort, offset, limit }, stop);
  const place = h("div");
  function show() {
    list = rows({ caption: "Proxies", noun: ["proxy", "proxies"], columns: COLUMNS, load, signal, sort, onsort: (by) => {
      sort = by;
      amend({ sort });
      show();
    } });
    replace(place, list.element);
  }
  replace(root, h("h1", {}, title), form, place);
  show();
  let known = null;
  const reload = throttle(1_000, () => list.reload());
  live.follow("overview", (numbers) => {
    if (known !== null && known !== numbers.proxiesState) reload();
    known = numbers.proxiesState;
  }, signal);
}
