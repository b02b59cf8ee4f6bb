// Registries: in sync or not, how far behind, what each has, and what it says of itself.

import { h, replace, throttle } from "../dom.js";
import { get } from "../api.js";
import * as live from "../live.js";
import * as format from "../format.js";
import { copyCommand } from "../command.js";
import { badge, facts, failure, lines, section, table } from "../parts.js";

export async function open({ root, signal, title }) {
  const place = h("div");
  replace(root, h("h1", {}, title), place);
  let ages = [];
  async function load() {
    try {
      const { items } = await get("registries", { limit: 500 }, signal);
      const now = [];
      replace(place, h("p", {}, copyCommand(() => ["registries", "--status"])), items.length ? items.map((one) => registry(one, now)) : h("p", { class: "quiet" }, "There is no registry."));
      ages = now;
    } catch (error) {
      if (!signal.aborted) replace(place, failure(error));
    }
  }
  await load();
  live.followPart("overview", (numbers) => numbers.registriesState, throttle(2_000, load), signal);
  // Ages grow by themselves: nothing is asked for that.
  live.follow("sample", () => ages.forEach((grow) => grow()), signal);
}

/** A text that grows older: `text` of the seconds since it was made. */
function age(ages, element, text) {
  const began = Date.now();
  const grow = () => { element.textContent = text((Date.now() - began) / 1_000); };
  grow();
  ages.push(grow);
  return element;
}

function condition(one) {
  if (one.failure) return badge("bad", one.synced ? "cannot be read: the last state stays" : "cannot be read");
  if (one.givenUp) return badge("doubt", "went on without it");
  if (!one.synced) return badge("busy", "waits for its first list");
  if (one.source?.held) return badge("doubt", "holds an answer back");
  if (one.source?.problemCount > 0) return badge("doubt", `synced, ${format.count(one.source.problemCount, "entry", "entries")} ignored`);
  return badge("good", "synced");
}

function registry(one, ages) {
  const source = one.source ?? {};
  return section(
    one.name,
    facts([
      ["State", condition(one)],
      ["Services", format.number(one.services)],
      ["Endpoints", format.number(one.endpoints)],
      ["Workloads", format.number(one.workloads)],
      ["Objects", source.objects === undefined ? "" : format.number(source.objects)],
      ["Last answer", source.lastAnswer ? age(ages, h("time", { datetime: source.lastAnswer, title: format.time(source.lastAnswer) }), () => format.ago(source.lastAnswer)) : ""],
      ["Lag", source.lagSeconds === undefined ? "" : age(ages, h("span"), (since) => format.span(source.lagSeconds + since))],
      ["Requests", source.requests === undefined ? "" : format.number(source.requests)],
      ["Sessions that failed", source.failures ? format.number(source.failures) : ""],
    ]),
    one.failure && h("p", { class: "quote" }, `Since ${format.time(one.failingSince)}: ${one.failure}`),
    source.held && h("p", {}, `An answer of ${format.time(source.held.since)} would leave ${format.number(source.held.wouldLeave)} of ${format.number(source.held.endpoints)} ${source.held.of}; a second one is asked for at ${format.time(source.held.until)}.`),
    source.problems?.length > 0 && h("details", {}, h("summary", {}, `${format.count(source.problemCount, "thing")} of it cannot be used as they are`), lines(source.problems)),
    one.losers?.length > 0 && h("details", {}, h("summary", {}, `${format.count(one.losers.length, "service")} of it lose to other registries`), table("Services that lose", LOSERS, one.losers)),
  );
}

const LOSERS = [
  { name: "Host", cell: (row) => row.hostname },
  { name: "Namespace", cell: (row) => row.namespace },
  { name: "Winner", cell: (row) => row.winner },
  { name: "Because", cell: (row) => row.reason },
];
