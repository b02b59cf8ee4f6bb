// Objects that are not in force, or doubtful.

import { h, replace, throttle } from "../dom.js";
import { get } from "../api.js";
import * as live from "../live.js";
import * as format from "../format.js";
import { badge, failure } from "../parts.js";
import { filters } from "../filters.js";
import { copyCommand } from "../command.js";
import { objectName } from "../names.js";

const SEVERITIES = [["", "any"], ["error", "errors"], ["warning", "warnings"]];
const IN_FORCE = { "last-good": "its last good version is in force", dropped: "nothing of it is in force", closed: "it closes what it is for", newest: "it is in force as it is" };
const PART = 200;

export function open({ root, signal, title }) {
  const list = h("ol", { class: "problems" });
  const note = h("p", { class: "quiet" });
  const more = h("div");
  let asked = new AbortController();
  signal.addEventListener("abort", () => asked.abort());
  const { form, values } = filters([
    { name: "severity", label: "Severity", options: SEVERITIES },
    { name: "namespace", label: "Namespace", hint: "shop" },
    { name: "name", label: "Object or message contains", hint: "VirtualService" },
  ], () => load(0));
  form.append(copyCommand(() => ["problems", values.namespace && ["-n", values.namespace], values.severity === "error" && "--errors"].flat()));
  replace(root, h("h1", {}, title), form, note, list, more);

  async function load(offset) {
    asked.abort();
    asked = new AbortController();
    const stop = asked.signal;
    try {
      const answer = await get("problems", { ...values, offset, limit: PART }, stop);
      if (offset === 0) list.replaceChildren();
      list.append(...answer.items.map(problem));
      note.textContent = answer.total === 0 ? "No problems." : format.count(answer.total, "problem");
      replace(more, answer.next !== undefined && h("button", { type: "button", onclick: () => load(answer.next) }, "Show more"));
    } catch (error) {
      if (!stop.aborted) replace(more, failure(error));
    }
  }

  load(0);
  const state = (numbers) => `${numbers.errors} ${numbers.warnings} ${numbers.revision}`;
  live.followPart("overview", state, throttle(2_000, () => load(0)), signal);
}

/** One problem as an item of a list. */
export function problem(one) {
  const how = one.severity === "error" ? "bad" : "doubt";
  return h(
    "li",
    { class: "card" },
    h("div", {}, badge(how, one.severity), " ", h("strong", {}, objectName(one.object || one.place))),
    h("p", {}, one.path && h("code", {}, one.path), one.path && ": ", one.message),
    one.hint && h("p", {}, one.hint),
    h("p", { class: "quiet" }, [one.object && one.place, IN_FORCE[one.inForce] ?? one.inForce].filter(Boolean).join("; ")),
  );
}
