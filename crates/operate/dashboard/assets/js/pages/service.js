// One service: who may call it, where its routes lead, its endpoints, and what shapes it.

import { h, replace, throttle } from "../dom.js";
import { get } from "../api.js";
import * as live from "../live.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { endpointHealth, facts, failure, folded, health, lines, section, table } from "../parts.js";
import { graph } from "../graph.js";
import { neighbourhood } from "../neighbourhood.js";
import { history } from "../history.js";
import { copyCommand } from "../command.js";
import { madeBy, objectName, objectNames } from "../names.js";
import { rows } from "../rows.js";
import { shownTo } from "./services.js";

const ENDPOINTS = [
  { name: "Address", class: "address", cell: (row) => h("a", { href: link(["why"], { address: row.address }), class: "mono" }, row.address ? `${row.address}${row.port ? `:${row.port}` : ""}` : "by gateway only") },
  { name: "Health", class: "w1", cell: (row) => endpointHealth(row.health) },
  { name: "Port", class: "opt w0", cell: (row) => row.portName },
  { name: "Locality", class: "opt w1", cell: (row) => row.locality },
  { name: "Weight", class: "opt right w0", cell: (row) => row.weight || "" },
  { name: "Network", class: "opt w0", cell: (row) => row.network },
  { name: "Workload", class: "opt w1", cell: (row) => row.workload },
  { name: "Made by", class: "opt", cell: (row) => madeBy(row.provenance, `${format.provenance(row.provenance)}, ${row.registry}`) },
];

export async function open({ root, name, query, signal }) {
  const namespace = query.get("namespace") ?? "";
  const about = h("div");
  const picture = h("div");
  const callers = h("div");
  const past = h("div");
  const remember = history(past, signal);
  const routes = h("div");
  const policies = h("div");
  const endpoints = rows({
    caption: "Endpoints",
    noun: ["endpoint", "endpoints"],
    columns: ENDPOINTS,
    load: (offset, limit, stop) => get("endpoints", { host: name, namespace, exact: true, offset, limit }, stop),
    signal,
  });
  endpoints.element.classList.add("low");
  replace(root, h("h1", {}, name), about, section("Around it", picture), section("Endpoints", h("p", {}, copyCommand(() => ["endpoints", name, namespace && ["-n", namespace]].flat())), endpoints.element), section("Routes", routes), section("Policies", policies), section("Who may call it", callers), past);

  async function load() {
    let detail;
    try {
      detail = await get("service", { host: name, namespace }, signal);
    } catch (error) {
      if (!signal.aborted) replace(about, failure(error));
      return;
    }
    replace(about, summary(detail));
    replace(routes, routeTable(detail.routes));
    replace(policies, policyLists(detail));
    replace(callers, callerTable(detail));
    replace(picture, await graph(neighbourhood(detail)));
    const { kind, namespace: home, name: object } = detail.service.provenance;
    const named = `${kind}/${home}/${object}`;
    if (kind) await remember({ object: named }, ["history", named]);
  }

  await load();
  const again = throttle(2_000, () => {
    load();
    endpoints.reload();
  });
  live.followPart("overview", (numbers) => numbers.revision, again, signal);
}

const pairs = (labels) => Object.entries(labels).map(([key, value]) => `${key}=${value}`).join(", ");

function summary({ service, labels, selector, identities, localities, others }) {
  return [
    facts([
      ["Endpoints", health(service)],
      ["Namespace", h("a", { href: link(["map"], { in: service.namespace }) }, service.namespace)],
      ["Registry", service.registry],
      ["Ports", service.ports.map((port) => `${port.number} (${port.name}, ${port.protocol})`).join(", ")],
      ["Addresses", service.addresses.join(", ")],
      ["Resolution", service.resolution],
      ["Shown to", shownTo(service.exportTo)],
      ["Made by", madeBy(service.provenance)],
      ["Selects", pairs(selector)],
      ["Labels", pairs(labels)],
      ["Localities", localityTexts(localities)],
      ["Ask", h("a", { href: link(["why"], { to: service.host }) }, "why a request fails")],
      ["Identities", identities.length > 3 ? `${identities.slice(0, 3).join(", ")} and ${identities.length - 3} more` : identities.join(", ")],
    ]),
    others.length > 0 && h("div", { class: "card" }, h("h3", {}, "Others of this host"), lines(others.map((one) => `${one.what}: ${one.why}`))),
  ];
}

function localityTexts(localities) {
  const known = localities.filter((one) => one.locality);
  return known.length > 0 && folded(known.map((one) => `${one.locality} (${one.healthy} of ${one.endpoints})`));
}

const ROUTES = [
  { name: "Made by", cell: (row) => row.madeBy.map((name, at) => [at > 0 && ", ", objectName(name)]) },
  { name: "For", cell: (row) => (row.own ? "this host" : row.hosts.join(", ")) },
  { name: "Gateways", class: "opt", cell: (row) => row.gateways.map((one) => (one === "mesh" ? "mesh (sidecars)" : one)).join(", ") },
  { name: "Leads to", cell: (row) => folded(row.destinations.map(destination)) },
];

function destination(to) {
  const text = `${to.host}${to.subset ? `, subset ${to.subset}` : ""}`;
  if (!to.namespace) return [text, " ", h("span", { class: "badge bad" }, "no such service")];
  return [h("a", { href: link(["services", to.host], { namespace: to.namespace }) }, text), " ", health(to)];
}

const routeTable = (routes) => table("Routes", ROUTES, routes, "No VirtualService, Ingress or route of the Gateway API is for this host or leads to it: requests go to its endpoints.");

function policyLists({ clientPolicies, workloadPolicies }) {
  return h(
    "div",
    { class: "two" },
    h("div", {}, h("h3", {}, "Of clients"), clientPolicies.length ? objectNames(clientPolicies) : h("p", { class: "quiet" }, "No DestinationRule.")),
    h("div", {}, h("h3", {}, "On its workloads"), workloadPolicies.length ? objectNames(workloadPolicies) : h("p", { class: "quiet" }, "None selects them.")),
  );
}

const CALLERS = [
  { name: "Namespace", cell: (row) => h("a", { href: link(["map"], { in: row.namespace }) }, row.namespace) },
  { name: "Sees it", cell: (row) => (row.sees ? "yes" : "no") },
  { name: "Because", cell: (row) => row.why || (row.sidecar ? [objectName(row.sidecar), " imports it"] : row.sees ? "it is shown to it" : "") },
  { name: "Workloads", class: "right opt", cell: (row) => format.number(row.workloads) },
  { name: "Proxies", class: "right opt", cell: (row) => format.number(row.proxies) },
];

const callerTable = ({ callers }) => table("Namespaces that may call it", CALLERS, [...callers].sort((a, b) => a.sees - b.sees || a.namespace.localeCompare(b.namespace)), "No namespace has workloads or proxies.");
