// The neighbourhood of a service as a graph: who sees it, its routes, where they lead, and its endpoints by locality.

import * as format from "./format.js";
import { link } from "./router.js";
import { serviceHealth as how } from "./health.js";
import { objectAddress } from "./names.js";

const CALLERS = 8;
const ROUTES = 8;
const LOCALITIES = 8;
const DESTINATIONS = 12;

const healthNote = ({ endpoints, healthy }) => (endpoints === 0 ? "no endpoints" : `${format.number(healthy)} of ${format.number(endpoints)} healthy`);

/** What `graph` draws of `/api/v1/service`. */
export function neighbourhood(detail) {
  const { service, routes, localities } = detail;
  const nodes = new Map();
  const edges = [];
  const add = (node) => {
    if (!nodes.has(node.id)) nodes.set(node.id, node);
    return node.id;
  };
  const self = add({ id: "self", label: short(service.host, service.namespace), note: healthNote(service), how: how(service), title: service.host, self: true });

  const own = routes.filter((route) => route.own);
  const toMe = callers(detail, add);
  const entry = own.length === 0 ? [self] : [];
  for (const [at, route] of own.slice(0, ROUTES).entries()) {
    const id = add({ id: `route-${at}`, label: route.madeBy[0] ?? "route", note: `route of ${route.hosts.length > 1 ? format.count(route.hosts.length, "host") : "this host"}`, how: "busy", href: objectAddress(route.madeBy[0]) });
    if (route.gateways.includes("mesh")) entry.push(id);
    for (const gateway of route.gateways.filter((one) => one !== "mesh")) {
      edges.push({ from: add({ id: `gateway-${gateway}`, label: gateway, note: "gateway", how: "none" }), to: id });
    }
    destinations(id, route, detail, add, edges);
  }
  // Where the routes are for gateways only, callers in the mesh go to the service itself.
  for (const from of toMe) for (const to of entry.length ? entry : [self]) edges.push({ from, to });

  for (const [at, route] of routes.filter((one) => !one.own).slice(0, ROUTES).entries()) {
    const id = add({ id: `other-${at}`, label: route.madeBy[0] ?? "route", note: `route of ${route.hosts.slice(0, 2).join(", ")}`, how: "busy", href: objectAddress(route.madeBy[0]) });
    destinations(id, { destinations: route.destinations.filter((to) => to.host === service.host) }, detail, add, edges);
  }
  for (const [at, one] of localities.slice(0, LOCALITIES).entries()) {
    edges.push({ from: self, to: add({ id: `locality-${at}`, label: one.locality || "no locality", note: healthNote(one), how: how(one) }) });
  }
  if (localities.length > LOCALITIES) {
    edges.push({ from: self, to: add({ id: "localities", label: `${localities.length - LOCALITIES} more localities`, note: "see its endpoints" }) });
  }
  return { label: `Around ${service.host}`, nodes: [...nodes.values()], edges: merged(edges) };
}

/** One line for each pair of boxes, with all that is said of it. */
function merged(edges) {
  const lines = new Map();
  for (const edge of edges) {
    const key = `${edge.from} ${edge.to}`;
    const line = lines.get(key) ?? { from: edge.from, to: edge.to, labels: [] };
    if (edge.label) line.labels.push(edge.label);
    lines.set(key, line);
  }
  return [...lines.values()].map(({ labels, ...line }) => ({ ...line, label: labels.join(", ") }));
}

/** `catalog` of `catalog.shop.svc.cluster.local`. */
const short = (host, namespace) => (host.includes(`.${namespace}.svc.`) ? host.split(`.${namespace}.svc.`)[0] : host);

function callers({ callers, service }, add) {
  const sees = callers.filter((one) => one.sees).sort((a, b) => b.proxies - a.proxies || b.workloads - a.workloads || a.namespace.localeCompare(b.namespace));
  const shown = sees.slice(0, CALLERS).map((one) => add({
    id: `caller-${one.namespace}`,
    label: one.namespace,
    note: [format.count(one.proxies, "proxy", "proxies"), one.sidecar].filter(Boolean).join(", "),
    how: "none",
    href: link(["map"], { in: one.namespace }),
  }));
  if (sees.length > CALLERS) shown.push(add({ id: "callers", label: `${format.number(sees.length - CALLERS)} more namespaces`, note: "see below" }));
  return shown;
}

/** Lines from a route to where it leads; a subset is a box of its own, with its own endpoints, before its service. */
function destinations(id, route, detail, add, edges) {
  for (const to of route.destinations.slice(0, DESTINATIONS)) {
    const whole = target(to, detail, add);
    if (!to.subset || !to.namespace) {
      edges.push({ from: id, to: whole, label: to.subset });
      continue;
    }
    const subset = add({ id: `subset ${to.host} ${to.subset} ${to.endpoints} ${to.healthy}`, label: `subset ${to.subset}`, note: healthNote(to), how: to.endpoints === 0 ? "bad" : how(to), title: to.host });
    edges.push({ from: id, to: subset }, { from: subset, to: whole });
  }
  const left = route.destinations.length - DESTINATIONS;
  if (left > 0) edges.push({ from: id, to: add({ id: `more ${id}`, label: `${format.number(left)} more destinations`, note: "see its routes" }) });
}

function target(to, { service }, add) {
  if (to.host === service.host) return "self";
  if (!to.namespace) return add({ id: `to-${to.host}`, label: to.host, note: "no such service", how: "bad" });
  return add({ id: `to-${to.host}`, label: short(to.host, to.namespace), note: to.subset ? `service of ${to.namespace}` : `${to.namespace}: ${healthNote(to)}`, how: to.subset ? "none" : how(to), title: to.host, href: link(["services", to.host], { namespace: to.namespace }) });
}
