// All services as a list.

import { h, replace, throttle } from "../dom.js";
import { get } from "../api.js";
import * as live from "../live.js";
import * as format from "../format.js";
import { amend, link } from "../router.js";
import { filters } from "../filters.js";
import { health } from "../parts.js";
import { rows } from "../rows.js";

const HEALTH = [["", "any"], ["healthy", "healthy"], ["degraded", "some endpoints are not healthy"], ["unhealthy", "no endpoint is healthy"], ["empty", "no endpoints"]];

const COLUMNS = [
  { name: "Host", sort: "host", class: "w3", cell: (row) => h("a", { href: link(["services", row.host], { namespace: row.namespace }), title: row.host }, row.host) },
  { name: "Endpoints", sort: "health", class: "w1", cell: health },
  { name: "Namespace", sort: "namespace", class: "w1 opt", cell: (row) => row.namespace },
  { name: "Ports", class: "opt w2", cell: (row) => row.ports.map((port) => `${port.number} ${port.protocol}`).join(", ") },
  { name: "Shown to", class: "opt w1", cell: (row) => shownTo(row.exportTo) },
  { name: "Made by", class: "opt w2", cell: (row) => format.provenance(row.provenance) },
];

/** What `exportTo` says, in words. */
export function shownTo(exportTo) {
  if (exportTo.length === 0) return "default";
  if (exportTo.includes("*")) return "everybody";
  if (exportTo.includes("~")) return "nobody";
  return exportTo.join(", ");
}

export function open({ root, query, signal, title }) {
  let list = null;
  let sort = query.get("sort") ?? "host";
  const { form, values } = filters([
    { name: "host", label: "Host contains", hint: "catalog" },
    { name: "namespace", label: "Namespace", hint: "shop" },
    { name: "health", label: "Health", options: HEALTH },
    { name: "registry", label: "Registry", hint: "Kubernetes" },
  ], () => list.reload(true));
  const load = (offset, limit, stop) => get("services", { ...values, sort, offset, limit }, stop);
  const place = h("div");
  function show() {
    list = rows({ caption: "Services", noun: ["service", "services"], columns: COLUMNS, load, signal, sort, onsort: (by) => {
      sort = by;
      amend({ sort });
      show();
    } });
    replace(place, list.element);
  }
  replace(root, h("h1", {}, title), form, place);
  show();
  let revision = null;
  const reload = throttle(1_000, () => list.reload());
  live.follow("overview", (numbers) => {
    if (revision !== null && revision !== numbers.revision) reload();
    revision = numbers.revision;
  }, signal);
}
