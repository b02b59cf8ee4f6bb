// The connected proxies as a list.

import { h } from "../dom.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { state } from "../parts.js";
import * as list from "./list.js";

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
  { name: "Has", class: "opt", cell: (row) => h("span", { title: resources(row) }, notSynced(row.types) || resources(row)) },
  { name: "Revision", class: "opt w1 right", cell: (row) => row.revision },
  { name: "Version", class: "opt w1", cell: (row) => row.version },
  { name: "Connected", class: "opt w1", cell: (row) => h("time", { datetime: row.connectedAt, title: format.time(row.connectedAt) }, format.ago(row.connectedAt)) },
];

const FIELDS = [
  { name: "name", label: "Name contains", hint: "web-0" },
  { name: "namespace", label: "Namespace", hint: "shop" },
  { name: "state", label: "State", options: STATES },
];

export function open(page) {
  list.open(page, { path: "proxies", caption: "Proxies", noun: ["proxy", "proxies"], command: ({ namespace }) => ["proxies", namespace && ["-n", namespace]], fields: FIELDS, columns: COLUMNS, state: (numbers) => numbers.proxiesState });
}
