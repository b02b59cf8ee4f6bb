// Changes on their way to the last proxy.

import { h } from "./dom.js";
import * as format from "./format.js";
import { badge } from "./parts.js";
import { objectName } from "./names.js";

/** The last changes, each with how many of its proxies have acknowledged it, and some of what changed. */
export function changeList(changes, named = 5) {
  if (changes.length === 0) return h("p", { class: "quiet" }, "Nothing has changed since the start.");
  return h("ol", { class: "changes" }, changes.map((one) => change(one, named)));
}

function change(one, named) {
  const { revision, what, proxies, acknowledged } = one;
  const more = one.more + Math.max(0, what.length - named);
  const part = proxies ? Math.round((acknowledged / proxies) * 100) : 0;
  const fill = h("span");
  fill.style.width = `${part}%`;
  // Nobody has to acknowledge what concerned no proxy: there is no progress to draw.
  const bar = proxies > 0 && h("div", { class: `bar ${one.rejected ? "bad" : one.complete ? "good" : ""}`, role: "progressbar", "aria-label": `revision ${revision}: acknowledged`, "aria-valuemin": 0, "aria-valuemax": proxies, "aria-valuenow": acknowledged }, fill);
  return h(
    "li",
    {},
    h("div", { class: "what" }, h("strong", {}, `revision ${revision}`), " ", what.slice(0, named).map((one, at) => [at > 0 && ", ", objectName(one)]), more > 0 && ` and ${format.number(more)} more`),
    h("div", { class: proxies > 0 ? "way" : "" }, bar, h("span", {}, progress(one))),
    h("time", { class: "quiet", datetime: new Date(one.at).toISOString(), title: format.time(one.at) }, format.ago(one.at)),
  );
}

function progress({ proxies, acknowledged, rejected, complete, seconds }) {
  if (proxies === 0 && !complete) return badge("busy", "published");
  if (proxies === 0) return badge("none", "concerned no proxy connected then");
  const of = `${format.number(acknowledged)} of ${format.number(proxies)} proxies`;
  if (rejected > 0) return [badge("bad", `${format.number(rejected)} refuse`), ` ${of} have it`];
  if (!complete) return [badge("busy", "on its way"), ` ${of} have it`];
  const after = seconds === undefined ? "" : ` in ${format.milliseconds(seconds * 1_000)}`;
  return [badge("good", "in force"), ` ${of}${after}`];
}
