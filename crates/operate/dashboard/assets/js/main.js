// The frame around the pages: navigation, the state of the connection, and which page is shown.

import { h, replace } from "./dom.js";
import * as live from "./live.js";
import * as router from "./router.js";
import { failure, badge } from "./parts.js";
import * as overview from "./pages/overview.js";
import * as services from "./pages/services.js";
import * as service from "./pages/service.js";
import * as map from "./pages/map.js";
import * as proxies from "./pages/proxies.js";
import * as proxy from "./pages/proxy.js";
import * as why from "./pages/why.js";
import * as registries from "./pages/registries.js";
import * as problems from "./pages/problems.js";
import * as changes from "./pages/changes.js";
import * as object from "./pages/object.js";
import { search } from "./search.js";

/** Pages by the first part of the address; `one`, where a name follows. */
const PAGES = {
  "": { page: overview, title: "Overview" },
  services: { page: services, title: "Services", one: service },
  map: { page: map, title: "Map" },
  proxies: { page: proxies, title: "Proxies", one: proxy },
  why: { page: why, title: "Why" },
  changes: { page: changes, title: "Changes" },
  registries: { page: registries, title: "Registries" },
  problems: { page: problems, title: "Problems" },
  // Objects have pages of their own, and no list.
  objects: { one: object, title: "Object" },
};

const main = document.getElementById("main");
const top = document.getElementById("top");
let shown = new AbortController();
let first = true;

function navigation() {
  const item = ([path, { title }]) => h("li", {}, h("a", { href: `#/${path}`, "data-page": path }, title));
  return h("nav", { "aria-label": "Pages" }, h("ul", {}, Object.entries(PAGES).filter(([, { page }]) => page).map(item)));
}

function themes() {
  const theme = window.pilotfishTheme;
  const choose = (event) => theme.choose(event.target.value);
  const option = (value, text) => h("option", { value, selected: theme.chosen() === value }, text);
  return h("div", { class: "field theme" }, h("label", { for: "theme" }, "Colours"), h("select", { id: "theme", onchange: choose }, option("system", "as the system"), option("light", "light"), option("dark", "dark")));
}

const CONNECTION = {
  connecting: ["busy", "connecting"],
  live: ["good", "live"],
  lost: ["bad", "not connected"],
  paused: ["none", "paused"],
};

function frame() {
  const connection = h("span", { class: "connection", role: "status" });
  const about = h("span", { class: "about" });
  live.followState((state) => replace(connection, badge(...CONNECTION[state])));
  live.follow("overview", (numbers) => replace(about, `revision ${numbers.revision}, ${numbers.version}`));
  replace(
    top,
    h("a", { class: "brand", href: "#/" }, h("img", { src: document.querySelector("link[rel=icon]").getAttribute("href"), alt: "", width: 28, height: 28 }), "Pilotfish"),
    search(),
    navigation(),
    h("div", { class: "status" }, connection, about, themes()),
  );
}

function go({ parts, query }) {
  const [path = "", name] = parts;
  const entry = PAGES[path];
  shown.abort();
  shown = new AbortController();
  for (const anchor of top.querySelectorAll("nav a")) {
    if (anchor.dataset.page === path) anchor.setAttribute("aria-current", "page"); else anchor.removeAttribute("aria-current");
  }
  if (!entry || (name ? !entry.one : !entry.page)) {
    document.title = "Not found – Pilotfish";
    replace(main, h("h1", {}, "There is no such page"), h("p", {}, h("a", { href: "#/" }, "To the overview")));
    return;
  }
  const page = name ? entry.one : entry.page;
  const heading = name ?? entry.title;
  document.title = `${heading} – Pilotfish`;
  replace(main);
  main.scrollTop = 0;
  try {
    page.open({ root: main, name, query, signal: shown.signal, title: heading });
  } catch (error) {
    replace(main, h("h1", {}, heading), failure(error));
    throw error;
  }
  // Who reads by ear hears which page it is; the first one is read by itself.
  if (!first) main.focus({ preventScroll: true });
  first = false;
}

frame();
live.start();
router.follow(go);
