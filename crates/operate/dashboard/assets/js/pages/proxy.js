// One proxy: what it has, what it refused and in which words, and `why` as a form.

import { h, replace, throttle } from "../dom.js";
import { get } from "../api.js";
import * as live from "../live.js";
import * as format from "../format.js";
import { facts, failure, folded, section, state, table } from "../parts.js";
import { config } from "../config.js";
import { history } from "../history.js";
import { copyCommand } from "../command.js";
import { objectNames } from "../names.js";
import { whyForm } from "../whyform.js";

const COLUMNS = [
  { name: "Type", class: "word", cell: (row) => row.name },
  { name: "State", class: "word", cell: (row) => state(row.state) },
  { name: "Since", class: "word", cell: (row) => h("time", { datetime: row.since, title: format.time(row.since) }, format.ago(row.since)) },
  { name: "Behind by", class: "opt", cell: (row) => (row.lagSeconds === undefined ? "" : format.span(row.lagSeconds)) },
  { name: "Resources", class: "right", cell: (row) => format.number(row.resources) },
  { name: "Subscribed", class: "right opt", cell: (row) => (row.subscribed === undefined ? "all" : format.number(row.subscribed)) },
  { name: "Revision", class: "right opt", cell: (row) => row.revision },
  // Proxies of one view get the same bytes.
  { name: "View", class: "right opt", cell: (row) => row.view ?? "" },
  { name: "Shared with", class: "right opt", cell: (row) => (row.sharedWith === undefined ? "" : format.number(row.sharedWith)) },
];

export async function open({ root, name, signal }) {
  const heading = h("h1", {}, name);
  const command = h("p");
  const about = h("div");
  const refused = h("div");
  const types = h("div");
  const sent = h("div");
  const why = h("div");
  const past = h("div");
  replace(root, heading, command, about, refused, section("What it has", types), section("Why does a request fail?", why), section("What it was sent", sent), past);

  async function load() {
    try {
      const proxy = await get(`proxies/${encodeURIComponent(name)}`, {}, signal);
      heading.textContent = proxy.name;
      replace(about, summary(proxy));
      replace(refused, proxy.types.filter((type) => type.rejection).map(rejection));
      replace(types, table("Types of resources", COLUMNS, proxy.types, "It has subscribed to nothing yet."));
      return proxy;
    } catch (error) {
      if (!signal.aborted) replace(about, failure(error));
      return null;
    }
  }

  const proxy = await load();
  if (!proxy || signal.aborted) return;
  document.title = `${proxy.name} – Pilotfish`;
  replace(command, copyCommand(() => ["proxies", proxy.name]));
  config(sent, proxy, signal);
  whyForm(why, { proxy: proxy.connection, label: proxy.name, signal });
  const changes = history(past, signal);
  const remember = () => changes({ proxy: proxy.connection }, ["history", proxy.name]);
  remember();
  const again = throttle(1_000, () => {
    load();
    remember();
  });
  live.followPart("overview", (numbers) => `${numbers.proxiesState} ${numbers.revision}`, again, signal);
}

function summary(proxy) {
  return facts([
    ["State", state(proxy.state)],
    ["Kind", proxy.kind],
    ["Version", proxy.version],
    ["Revision acknowledged", proxy.revision],
    ["Connected", h("time", { datetime: proxy.connectedAt, title: format.time(proxy.connectedAt) }, format.ago(proxy.connectedAt))],
    ["Address", proxy.address],
    ["Cluster", proxy.cluster],
    ["Protocol", proxy.protocol],
    ["Identities", proxy.identities?.join(", ")],
    ["Certificate", proxy.certificate && certificate(proxy.certificate)],
    ["Connection", proxy.connection],
  ]);
}

function certificate({ identity, expires, source }) {
  const end = h("time", { datetime: expires }, format.time(expires));
  return h("span", {}, `${identity} until `, end, source === "sds" ? ", sent over SDS" : ", of its connection");
}

function rejection({ name, rejection }) {
  return section(
    `It refuses ${name}`,
    h("p", {}, `Since ${format.time(rejection.at)}. What it had before stays in force. It says:`),
    h("p", { class: "quote" }, rejection.reason),
    facts([
      ["Resources", h("div", {}, folded(rejection.resources))],
      ["Made by", rejection.madeBy?.length ? h("div", {}, objectNames(rejection.madeBy)) : ""],
    ]),
    rejection.error !== rejection.reason && h("details", {}, h("summary", {}, "All that it said"), h("p", { class: "quote" }, rejection.error)),
  );
}
