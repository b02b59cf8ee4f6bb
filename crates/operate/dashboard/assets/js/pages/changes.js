// A change watched on its way to the last proxy, and those before it.

import { h, replace } from "../dom.js";
import { get } from "../api.js";
import * as live from "../live.js";
import * as format from "../format.js";
import { failure, lines, section, state, table } from "../parts.js";
import { changeList } from "../changes.js";
import { link } from "../router.js";
import { filters } from "../filters.js";
import { copyCommand } from "../command.js";
import { timeRange } from "../timerange.js";

export function open({ root, signal, title }) {
  const list = h("div");
  const waiting = h("div");
  const ask = async (what) => {
    const query = /^\d+$/.test(what) ? { revision: what } : { object: what };
    try {
      replace(waiting, acknowledged(await get("acknowledgements", what ? query : {}, signal)));
    } catch (error) {
      if (!signal.aborted) replace(waiting, failure(error));
    }
  };
  let newest = [];
  const { control, within } = timeRange("changes-time", () => draw());
  const draw = () => {
    const shown = newest.filter((one) => within(one.at));
    replace(list, newest.length > 0 && shown.length === 0 ? h("p", { class: "quiet" }, "No changes recorded in this time.") : changeList(shown));
  };
  const { form, values } = filters([{ name: "of", label: "Revision or object (empty for the newest)", hint: "VirtualService/shop/catalog" }], ({ of }) => ask(of));
  replace(
    root,
    h("h1", {}, title),
    section("Who has it", form, waiting),
    section("On their way", h("p", { class: "quiet" }, "Each publication of the control plane, the newest first, with how many of the proxies that it concerns have acknowledged it."), h("div", { class: "filters" }, control, copyCommand(() => ["history"])), list),
  );
  live.follow("changes", (changes) => {
    newest = changes;
    draw();
    ask(values.of);
  }, signal);
  ask(values.of);
}

function acknowledged({ revision, current, proxies, acknowledged, missing = [], object }) {
  if (object?.problems?.length > 0) {
    return [
      h("p", { class: "outcome bad" }, `The newest version of ${object.name} is not in force.`),
      lines(object.problems),
    ];
  }
  const all = acknowledged === proxies;
  const columns = [
    { name: "Proxy", cell: (row) => h("a", { href: link(["proxies", row.proxy]) }, row.proxy) },
    { name: "Type", class: "word", cell: (row) => row.resourceType },
    { name: "State", class: "word", cell: (row) => state(row.state) },
    { name: "Since", class: "word", cell: (row) => format.ago(row.since) },
    { name: "It says", cell: (row) => row.reason ?? "" },
  ];
  return [
    h("p", { class: `outcome ${all ? "good" : "bad"}` }, `${format.number(acknowledged)} of ${format.number(proxies)} ${proxies === 1 ? "proxy has" : "proxies have"} revision ${revision}${revision === current ? ", the newest" : ""}, or are not concerned.`),
    missing.length > 0 && table("Proxies that have not acknowledged it", columns, missing),
  ];
}
