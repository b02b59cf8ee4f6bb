// Everything in numbers, with the newest changes and what it costs.

import { h, replace } from "../dom.js";
import * as live from "../live.js";
import * as format from "../format.js";
import { badge, figure, section } from "../parts.js";
import { charts } from "../charts.js";
import { changeList } from "../changes.js";

export function open({ root, signal, title }) {
  const state = h("p", {}, badge("busy", "waiting for the first numbers"));
  const figures = h("div", { class: "figures" });
  const changes = h("div");
  const drawn = h("div", { class: "charts" });
  const last = section("Last changes", changes, h("p", {}, h("a", { href: "#/changes" }, "All that are remembered")));
  replace(root, h("h1", {}, title), state, figures, last, h("h2", {}, "Live"), drawn);
  live.follow("overview", (numbers) => {
    replace(state, readiness(numbers));
    replace(figures, tiles(numbers));
  }, signal);
  live.follow("changes", (all) => replace(changes, changeList(all.slice(0, 5), 2)), signal);
  charts(drawn, signal);
}

function readiness(numbers) {
  if (numbers.ready) return badge("good", "ready");
  return [badge("bad", "not ready"), ` It waits for ${numbers.waitingFor.join(", ")}.`];
}

/** Several numbers that are not zero, as words. */
function words(pairs) {
  return pairs.filter(([value]) => value > 0).map(([value, text]) => `${format.number(value)} ${text}`).join(", ");
}

function tiles(n) {
  const proxies = words([[n.proxiesRejected, "rejected"], [n.proxiesPending, "pending"]]) || (n.proxies ? "all synced" : "none is connected");
  const services = words([[n.servicesUnhealthy, "unhealthy"], [n.servicesEmpty, "without endpoints"]]) || "all have healthy endpoints";
  const sick = n.endpoints - n.healthy;
  return [
    figure("#/proxies?sort=state", "Proxies", format.number(n.proxies), proxies, n.proxiesRejected ? "bad" : n.proxiesPending ? "busy" : "good"),
    figure("#/services?sort=health", "Services", format.number(n.services), services, n.servicesUnhealthy ? "bad" : n.servicesEmpty ? "doubt" : "good"),
    figure("#/services?sort=health", "Endpoints", format.number(n.endpoints), sick ? `${format.number(sick)} not healthy` : "all healthy", sick ? "doubt" : "good"),
    figure("#/map", "Namespaces", format.number(n.namespaces), "who may call whom"),
    figure("#/registries", "Registries", format.number(n.registries), n.registriesWell === n.registries ? "all well" : `${n.registries - n.registriesWell} in trouble`, n.registriesWell === n.registries ? "good" : "bad"),
    figure("#/problems", "Problems", format.number(n.errors + n.warnings), words([[n.errors, "errors"], [n.warnings, "warnings"]]) || "none", n.errors ? "bad" : n.warnings ? "doubt" : "good"),
  ];
}
