// Everything in numbers, with the newest changes and what it costs.

import { h, replace } from "../dom.js";
import * as live from "../live.js";
import * as format from "../format.js";
import { badge, figure, section } from "../parts.js";
import { copyCommand } from "../command.js";
import { objectAddress } from "../names.js";
import { link } from "../router.js";
import { shareHealth } from "../health.js";
import { charts } from "../charts.js";
import { changeList } from "../changes.js";

export function open({ root, signal, title }) {
  const state = h("div", { class: "verdict" }, badge("busy", "waiting for the first numbers"));
  const figures = h("div", { class: "figures" });
  const changes = h("div");
  const drawn = h("div", { class: "charts" });
  const last = section("Last changes", changes, h("p", {}, h("a", { href: "#/changes" }, "All changes")));
  replace(root, h("h1", {}, title), state, figures, last, h("h2", {}, "Live"), drawn);
  let known = "";
  live.follow("overview", (numbers) => {
    const next = JSON.stringify(verdict(numbers));
    if (next !== known) replace(state, verdictCard(verdict(numbers)));
    known = next;
    replace(figures, tiles(numbers));
  }, signal);
  live.follow("changes", (all) => replace(changes, changeList(all.slice(0, 5), 2)), signal);
  charts(drawn, signal);
}

const LEVELS = { well: "good", degraded: "doubt", notReady: "bad" };

/** Causes that are shown before the others fold. */
const CAUSES = 5;

/** Where each kind of cause is looked into. */
const CAUSE_PAGES = {
  notReady: () => "#/registries",
  silentSource: () => "#/problems",
  refusal: ({ subject }) => (subject ? link(["proxies", subject]) : "#/proxies?state=rejected"),
  registry: () => "#/registries",
  object: ({ object }) => objectAddress(object) ?? "#/problems?severity=error",
  conflict: () => "#/problems",
  unusableEntries: () => "#/registries",
};

/** The verdict of the control plane as it is, and what is in doubt beside it: level, summary, and causes with where each leads. */
function verdict(numbers) {
  const { level, summary, causes = [], more = 0 } = numbers.verdict;
  const all = causes.map((one) => ({ text: [one.subject, one.message].filter(Boolean).join(": "), href: (CAUSE_PAGES[one.kind] ?? CAUSE_PAGES.conflict)(one), how: one.kind === "unusableEntries" || one.kind === "conflict" ? "doubt" : "bad" }));
  if (more > 0) all.push({ text: `${format.number(more)} more`, href: "#/problems", how: "doubt" });
  if (numbers.servicesUnhealthy > 0) {
    all.push({ text: `${format.count(numbers.servicesUnhealthy, "service has", "services have")} endpoints, none of them healthy`, href: "#/services?health=unhealthy", how: shareHealth(numbers.servicesUnhealthy, numbers.services - numbers.servicesEmpty) === "good" ? "doubt" : "bad" });
  }
  return { level, summary, all };
}

/** The state in one line, and below it what is wrong, the worst first, each with the way to it. */
function verdictCard({ level, summary, all }) {
  const item = ({ text, href, how }) => h("li", {}, badge(how, how === "bad" ? "error" : "warning"), " ", h("a", { href }, text));
  const [state, counts] = summary.split(/:(.*)/s);
  const list = (some) => h("ul", { class: "lines causes" }, some.map(item));
  return h(
    "section",
    { "aria-label": "State of the control plane", class: `state ${LEVELS[level] ?? "none"}` },
    h("p", { class: "summary" }, badge(LEVELS[level] ?? "none", state), counts && h("span", {}, counts.trim()), copyCommand(() => ["status"])),
    all.length > 0 && list(all.slice(0, CAUSES)),
    all.length > CAUSES && h("details", {}, h("summary", {}, `${format.number(all.length - CAUSES)} more`), list(all.slice(CAUSES))),
  );
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
    figure("#/services?sort=health", "Services", format.number(n.services), services, shareHealth(n.servicesUnhealthy, n.services - n.servicesEmpty)),
    figure("#/services?sort=health", "Endpoints", format.number(n.endpoints), sick ? `${format.number(sick)} not healthy` : "all healthy", shareHealth(sick, n.endpoints)),
    figure("#/map", "Namespaces", format.number(n.namespaces), "who may call whom"),
    figure("#/registries", "Registries", format.number(n.registries), n.registriesWell === n.registries ? "all well" : `${n.registries - n.registriesWell} in trouble`, n.registriesWell === n.registries ? "good" : "bad"),
    figure("#/problems", "Problems", format.number(n.errors + n.warnings), [[n.errors, "error"], [n.warnings, "warning"]].filter(([value]) => value > 0).map((one) => format.count(...one)).join(", ") || "none", n.errors ? "bad" : n.warnings ? "doubt" : "good"),
  ];
}
