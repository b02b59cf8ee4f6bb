// One object: whom it reaches, what is wrong with it, its YAML, and its last changes.

import { h, replace, throttle } from "../dom.js";
import { get } from "../api.js";
import * as live from "../live.js";
import { copyCommand } from "../command.js";
import { facts, failure, folded, section } from "../parts.js";
import { history } from "../history.js";
import { problem } from "./problems.js";
import { yaml } from "../yaml.js";
import { link } from "../router.js";
import * as format from "../format.js";

/** `VirtualService/shop/catalog`, or `Namespace/shop`. */
function parts(name) {
  const [kind, ...rest] = name.split("/");
  return { kind, namespace: rest.length > 1 ? rest[0] : "", object: rest.at(-1) ?? "" };
}

export async function open({ root, name, signal }) {
  const { kind, namespace, object } = parts(name);
  const reach = h("div");
  const wrong = h("div");
  const text = h("div");
  const past = h("div");
  const remember = history(past, signal);
  replace(root, h("h1", {}, name), h("p", {}, copyCommand(() => ["why", "no", "config", name])), wrong, section("Whom it reaches", reach), section("As it is in force", text), past);
  const fill = async (place, load) => {
    try {
      replace(place, await load());
    } catch (error) {
      if (!signal.aborted) replace(place, failure(error));
    }
  };
  const load = () => Promise.all([
    fill(reach, async () => reached(await get("why/object", { object: name }, signal))),
    fill(wrong, async () => problems(await get("problems", { name: `${kind} ${name.slice(kind.length + 1)}`, limit: 20 }, signal))),
    fill(text, async () => written(await get("/debug/configz", { kind, namespace, name: object }, signal), namespace)),
    remember({ object: name }, ["history", name]),
  ]);
  await load();
  live.followPart("overview", (numbers) => numbers.revision, throttle(2_000, load), signal);
}

const problems = ({ items }) => items.length > 0 && section("What is wrong with it", h("ol", { class: "problems" }, items.map(problem)));

function reached({ proxies, reached, examples = [], reasons = [] }) {
  const example = (one) => h("li", {}, h("a", { href: link(["proxies", one.proxy]) }, one.proxy), one.resources?.length > 0 && `: ${one.resources.join(", ")}`);
  return [
    h("p", {}, `${format.number(reached)} of ${format.count(proxies, "connected proxy", "connected proxies")} have something that it made.`),
    examples.length > 0 && h("ul", { class: "lines" }, examples.map(example)),
    reasons.length > 0 && [h("h3", {}, "Others have not, because"), folded(reasons.map((one) => `${one.what}: ${one.why}`))],
  ];
}

function written(all, namespace) {
  const one = all.find((other) => other.metadata.namespace === namespace);
  if (!one) return h("p", { class: "quiet" }, "It is not in force: it was never valid, it is gone, or its kind is not shown.");
  const { origin, creationTimestamp, ...rest } = one.metadata;
  const isSet = ([, value]) => typeof value === "string" || Object.keys(value ?? {}).length > 0;
  const metadata = Object.fromEntries(Object.entries(rest).filter(isSet));
  return [
    facts([["From", origin], ["Created", creationTimestamp && format.time(creationTimestamp)]]),
    h("pre", { class: "yaml", tabindex: "0", role: "group", "aria-label": "The object as YAML" }, yaml({ kind: one.kind, metadata, spec: one.spec })),
  ];
}
