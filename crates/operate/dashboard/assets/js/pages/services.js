// All services as a list.

import { h } from "../dom.js";
import { link } from "../router.js";
import { health } from "../parts.js";
import { madeBy } from "../names.js";
import * as list from "./list.js";

const HEALTH = [["", "any"], ["healthy", "healthy"], ["degraded", "some endpoints are not healthy"], ["unhealthy", "no endpoint is healthy"], ["empty", "no endpoints"]];

const COLUMNS = [
  { name: "Host", sort: "host", class: "w3", cell: (row) => h("a", { href: link(["services", row.host], { namespace: row.namespace }), title: row.host }, row.host) },
  { name: "Endpoints", sort: "health", class: "w1", cell: health },
  { name: "Namespace", sort: "namespace", class: "w1 opt", cell: (row) => h("a", { href: link(["map"], { in: row.namespace }) }, row.namespace) },
  { name: "Ports", class: "opt w1", cell: (row) => row.ports.map((port) => `${port.number} ${port.protocol}`).join(", ") },
  { name: "Shown to", class: "opt w1", cell: (row) => shownTo(row.exportTo) },
  { name: "Made by", class: "opt", cell: (row) => madeBy(row.provenance) },
];

/** What `exportTo` says, in words. */
export function shownTo(exportTo) {
  if (exportTo.length === 0) return "default";
  if (exportTo.includes("*")) return "everybody";
  if (exportTo.includes("~")) return "nobody";
  return exportTo.join(", ");
}

const FIELDS = [
  { name: "host", label: "Host contains", hint: "catalog" },
  { name: "namespace", label: "Namespace", hint: "shop" },
  { name: "health", label: "Health", options: HEALTH },
  { name: "registry", label: "Registry", hint: "Kubernetes" },
];

export function open(page) {
  list.open(page, { path: "services", caption: "Services", noun: ["service", "services"], command: ({ host, namespace, registry, health: state }) => ["services", host, namespace && ["-n", namespace], registry && ["--registry", registry], ["unhealthy", "empty"].includes(state) && "--without-endpoints"], fields: FIELDS, columns: COLUMNS, state: (numbers) => numbers.revision });
}
