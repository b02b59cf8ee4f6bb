// Services as a map. It stays a picture however many there are: namespaces first, then the services of one namespace; the neighbourhood of one
// service is on its own page.

import { h, replace, throttle } from "../dom.js";
import { get } from "../api.js";
import * as live from "../live.js";
import * as format from "../format.js";
import { link } from "../router.js";
import { badge, failure, section } from "../parts.js";
import { filters } from "../filters.js";
import { graph } from "../graph.js";
import { namespaceHealth, serviceHealth } from "../health.js";

const TILES = 240;
/** Namespaces of a picture with arrows. */
const DRAWN = 24;

export function open({ root, query, signal, title }) {
  const namespace = query.get("in");
  replace(root, h("h1", {}, namespace ? `Map of ${namespace}` : title));
  return namespace ? services(root, namespace, signal) : namespaces(root, signal);
}

function legend() {
  return h("p", { class: "legend" }, badge("good", "healthy"), badge("doubt", "over 10 % of endpoints are not"), badge("bad", "none is, or half of the services are down"), badge("none", "no endpoints"));
}

function namespaces(root, signal) {
  const scopes = h("div");
  const tiles = h("div");
  const found = h("div");
  const only = h("div");
  let known = [];
  const { form, values } = filters([
    { name: "q", label: "Find a namespace or a service", hint: "catalog" },
  ], ({ q }) => {
    draw();
    search(found, q, signal);
  });
  root.append(form, found, section("Namespaces", legend(), tiles), only, section("Who sees whose services", scopes));
  const draw = () => {
    const shown = known.filter((one) => one.name.includes(values.q));
    replace(
      tiles,
      h("ul", { class: "tiles" }, shown.slice(0, TILES).map((one) => h("li", {}, namespaceTile(one)))),
      shown.length > TILES && h("p", { class: "quiet" }, `${format.number(shown.length - TILES)} more: search to see them.`),
      shown.length === 0 && h("p", { class: "quiet" }, "No namespace has that in its name."),
    );
  };
  async function load() {
    try {
      const map = await get("map", {}, signal);
      known = map.namespaces.sort((a, b) => trouble(b) - trouble(a) || a.name.localeCompare(b.name));
      draw();
      // A mesh of one namespace needs no choice.
      if (known.length === 1 && !only.firstChild) services(only, known[0].name, signal);
      replace(scopes, await scopePicture(map));
    } catch (error) {
      if (!signal.aborted) replace(tiles, failure(error));
    }
  }
  load();
  if (values.q) search(found, values.q, signal);
  reloads(load, signal);
}

/** Loads again when something has changed. */
function reloads(load, signal) {
  live.followPart("overview", (numbers) => numbers.revision, throttle(5_000, load), signal);
}

/** The worst first: by colour, then by what is out at all. */
const trouble = (one) => ({ bad: 3, doubt: 2 })[namespaceHealth(one)] ?? (one.unhealthy + one.degraded > 0 ? 1 : 0);

function namespaceTile(one) {
  const how = namespaceHealth(one);
  const notes = [
    one.unhealthy > 0 && `${format.number(one.unhealthy)} unhealthy`,
    one.degraded > 0 && `${format.number(one.degraded)} degraded`,
    one.empty > 0 && `${format.number(one.empty)} without endpoints`,
  ].filter(Boolean);
  return h(
    "a",
    { class: `tile ${how}`, href: link(["map"], { in: one.name }) },
    h("strong", {}, one.name || "(none)"),
    h("span", { class: "note" }, `${format.count(one.services, "service")}, ${format.count(one.proxies, "proxy", "proxies")}`),
    h("span", { class: "note" }, notes.join(", ") || (one.services ? "all healthy" : "no services")),
    share(one),
  );
}

function share(one) {
  const part = (how, value) => {
    const bar = h("span", { class: how });
    bar.style.flexGrow = value;
    return value > 0 ? bar : null;
  };
  return h("span", { class: "share", "aria-hidden": "true" }, part("good", one.healthy), part("doubt", one.degraded), part("bad", one.unhealthy));
}

async function search(place, text, signal) {
  if (!text) {
    replace(place);
    return;
  }
  try {
    const answer = await get("services", { host: text, limit: 24 }, signal);
    replace(place, section("Services with that in their name", tilesOf(answer)));
  } catch (error) {
    if (!signal.aborted) replace(place, error.kind === "not-found" ? h("p", { class: "quiet" }, `No service has that in its name. ${error.names?.length ? `Near: ${error.names.join(", ")}` : ""}`) : failure(error));
  }
}

function tilesOf({ items, total }) {
  return [
    h("ul", { class: "tiles" }, items.map((one) => h("li", {}, serviceTile(one)))),
    total > items.length && h("p", { class: "quiet" }, `${format.number(total - items.length)} more: narrow it down to see them.`),
  ];
}

function serviceTile(one) {
  const how = serviceHealth(one);
  const note = one.endpoints === 0 ? "no endpoints" : `${format.number(one.healthy)} of ${format.number(one.endpoints)} healthy`;
  return h("a", { class: `tile ${how}`, href: link(["services", one.host], { namespace: one.namespace }) }, h("strong", {}, short(one)), h("span", { class: "note" }, note));
}

const short = (one) => (one.host.includes(`.${one.namespace}.svc.`) ? one.host.split(`.${one.namespace}.svc.`)[0] : one.host);

function services(root, namespace, signal) {
  const tiles = h("div");
  const routes = h("div");
  const { form, values } = filters([{ name: "host", label: "Host contains", hint: "catalog" }], () => load());
  root.append(h("p", {}, h("a", { href: "#/map" }, "All namespaces"), " · ", h("a", { href: link(["services"], { namespace }) }, "as a list")), form, section("Services", legend(), tiles), section("Who calls whom", routes));
  async function load() {
    try {
      replace(tiles, tilesOf(await get("services", { namespace, host: values.host, sort: "health", limit: TILES }, signal)));
      replace(routes, await routePicture(namespace, signal));
    } catch (error) {
      if (!signal.aborted) replace(tiles, failure(error));
    }
  }
  load();
  reloads(load, signal);
}

/** Lines of a route. A subset of another service is a box before it, with its own endpoints; one of the same service is a box after it. */
function routeEdges(one, box, add) {
  const [from, to] = [box(one.from, one.isService), box(one.to, true)];
  if (!one.toSubset) return [{ from, to, routed: true }];
  const { endpoints, healthy } = one.toSubset;
  const subset = add({
    id: `subset ${one.to.namespace} ${one.to.host} ${one.subset} ${endpoints} ${healthy}`,
    label: `${short(one.to)}, ${one.subset}`,
    note: endpoints === 0 ? "subset without endpoints" : `${format.number(healthy)} of ${format.number(endpoints)} healthy`,
    how: endpoints === 0 ? "bad" : serviceHealth(one.toSubset),
    title: `subset ${one.subset} of ${one.to.host}`,
  });
  const lines = [{ from, to: subset, routed: true }];
  return from === to ? lines : [...lines, { from: subset, to }];
}

/** Arrows between the services of a namespace and others where routes lead, and from the namespaces that see this one by scope. */
async function routePicture(namespace, signal) {
  const [around, map] = await Promise.all([get(`map/${encodeURIComponent(namespace)}`, {}, signal), get("map", {}, signal)]);
  const nodes = new Map();
  const add = (node) => {
    if (!nodes.has(node.id) && nodes.size < DRAWN * 2) nodes.set(node.id, node);
    return node.id;
  };
  const box = (one, isService) => add({
    id: `service ${one.namespace} ${one.host}`,
    label: one.namespace === namespace ? short(one) : one.host,
    note: isService ? `${format.number(one.healthy)} of ${format.number(one.endpoints)} healthy` : "host of a route",
    how: isService ? serviceHealth(one) : "none",
    title: `${one.host} of ${one.namespace}`,
    href: isService ? link(["services", one.host], { namespace: one.namespace }) : undefined,
  });
  const edges = around.routes.flatMap((one) => routeEdges(one, box, add));
  const callers = map.links.filter((one) => one.to === namespace && one.services > 0);
  if (callers.length > 0) {
    const all = add({ id: "all", label: `services of ${namespace}`, note: "by scope", how: "none" });
    for (const one of callers.slice(0, DRAWN)) {
      edges.push({ from: add({ id: `namespace ${one.from}`, label: one.from, note: "namespace", how: "none", href: link(["map"], { in: one.from }) }), to: all, label: format.number(one.services) });
    }
  }
  const wide = map.namespaces.filter((one) => one.seesAll).length;
  const words = h(
    "p",
    {},
    wide > 0 && `Proxies of ${format.count(wide, "namespace")} see every service of it that is shown to everybody. `,
    edges.length > 0 ? "Bold arrows are routes: what is sent to one goes to the other. The others are namespaces whose Sidecar or exportTo names services of this one." : "No route leads from its services or to them, and no Sidecar or exportTo names them.",
    around.truncated && " There are more routes than are drawn.",
  );
  const pairs = new Map(edges.filter((one) => nodes.has(one.from) && nodes.has(one.to)).map((one) => [`${one.from} ${one.to} ${one.label ?? ""}`, one]));
  const drawn = [...pairs.values()];
  if (drawn.length === 0) return words;
  return [words, await graph({ label: `Who calls whom in ${namespace}`, nodes: [...nodes.values()], edges: drawn })];
}

/** Arrows from namespaces to those whose services they see, where that is not everything. */
async function scopePicture(map) {
  const narrowed = map.namespaces.filter((one) => one.sidecar);
  const wide = map.namespaces.filter((one) => one.seesAll).length;
  const words = h(
    "p",
    {},
    wide > 0 && `Proxies of ${format.count(wide, "namespace")} see every service that is shown to everybody. `,
    narrowed.length > 0 && `Sidecars narrow what those of ${format.count(narrowed.length, "namespace")} see. `,
    map.links.length > 0 && "An arrow leads from a namespace to one whose services it sees because a Sidecar imports them or exportTo names it, with their number. ",
    map.links.some((one) => one.routed) && "Where routes lead to services of the other namespace, the arrow is bold and says to how many; it is dashed where nothing else is between the two.",
    map.truncated && " The mesh is too large to look at all scopes: the page of a service says who sees it.",
  );
  if (map.links.length === 0) return words;
  const weight = new Map();
  for (const { from, to } of map.links) {
    for (const name of [from, to]) weight.set(name, (weight.get(name) ?? 0) + 1);
  }
  const chosen = new Set([...weight.entries()].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, DRAWN).map(([name]) => name));
  const rows = new Map(map.namespaces.map((one) => [one.name, one]));
  const nodes = [...chosen].map((name) => {
    const one = rows.get(name) ?? {};
    const how = one.services ? namespaceHealth(one) : "none";
    const note = one.sidecar ?? (one.seesAll ? "sees everything" : format.count(one.services ?? 0, "service"));
    return { id: name, label: name, note, how, href: link(["map"], { in: name }) };
  });
  const edges = map.links.filter((one) => chosen.has(one.from) && chosen.has(one.to)).map((one) => ({
    from: one.from,
    to: one.to,
    label: [one.services > 0 && format.number(one.services), one.routed > 0 && `${format.number(one.routed)} by routes`].filter(Boolean).join(", "),
    routed: one.routed > 0,
    dashed: one.services === 0,
  }));
  const left = weight.size - chosen.size;
  return [
    words,
    left > 0 && h("p", { class: "quiet" }, `The ${format.number(DRAWN)} namespaces with the most arrows; ${format.number(left)} others are left out.`),
    await graph({ label: "Who sees whose services", nodes, edges }),
  ];
}
