// Why a request of a proxy goes where it goes, and what an address is an endpoint of.

import { h, replace } from "../dom.js";
import { get } from "../api.js";
import { amend } from "../router.js";
import { badge, failure, section, table } from "../parts.js";
import { link } from "../router.js";
import { whyForm } from "../whyform.js";
import { copyCommand } from "../command.js";
import { objectName } from "../names.js";

export function open({ root, query, signal, title }) {
  const request = h("div");
  const address = h("div");
  replace(root, h("h1", {}, title), section("Where does a request go?", request), section("What is an address in?", address));
  whyForm(request, { signal });
  addressForm(address, query, signal);
}

function addressForm(place, query, signal) {
  const input = h("input", { id: "why-address", required: true, autocomplete: "off", placeholder: "10.0.0.7", value: query.get("address") ?? "" });
  const answer = h("div");
  async function ask() {
    const wanted = input.value.trim();
    amend({ address: wanted });
    try {
      const found = await get("why/endpoint", { address: wanted }, signal);
      replace(answer, h("p", {}, found.workloads.length ? found.workloads.join(", ") : "No workload has this address."), table("Services", COLUMNS, found.services, "It is an endpoint of no service."));
    } catch (error) {
      if (!signal.aborted) replace(answer, failure(error));
    }
  }
  const submit = (event) => {
    event.preventDefault();
    ask();
  };
  replace(place, h("form", { class: "filters", "aria-label": "An address", onsubmit: submit }, h("div", { class: "field" }, h("label", { for: "why-address" }, "IP address"), input), h("button", { type: "submit", class: "main" }, "Look up"), copyCommand(() => ["why", "endpoint", input.value.trim()])), answer);
  if (input.value) ask();
}

const COLUMNS = [
  { name: "Service", cell: (row) => h("a", { href: link(["services", row.host], { namespace: row.namespace }) }, row.host) },
  { name: "Traffic", cell: (row) => (row.serves ? badge("good", "gets it") : badge("bad", "does not")) },
  { name: "Because", cell: (row) => row.rule },
  { name: "Made by", class: "opt", cell: (row) => objectName(row.madeBy) },
];
