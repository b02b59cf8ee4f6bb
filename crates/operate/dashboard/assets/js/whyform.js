// `why` as a form: the way of a request through the resources of one proxy.

import { h, replace, announce } from "./dom.js";
import { get } from "./api.js";
import { amend, read } from "./router.js";
import { badge, failure } from "./parts.js";
import { copyCommand } from "./command.js";
import { objectName } from "./names.js";
import { suggest } from "./suggest.js";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

/** The form, and below it the answer. Where `proxy` is given, it is about that one. */
export function whyForm(place, { proxy, label, signal }) {
  const query = read().query;
  const from = h("input", { id: "why-proxy", name: "proxy", required: true, autocomplete: "off", spellcheck: "false", placeholder: "web-0.shop", value: query.get("proxy") ?? "" });
  const to = h("input", { id: "why-to", name: "to", required: true, autocomplete: "off", spellcheck: "false", placeholder: "catalog:80", value: query.get("to") ?? "" });
  const path = h("input", { id: "why-path", name: "path", autocomplete: "off", spellcheck: "false", placeholder: "/", value: query.get("path") ?? "" });
  const method = h("select", { id: "why-method", name: "method" }, METHODS.map((one) => h("option", { value: one, selected: one === (query.get("method") ?? "GET") }, one)));
  const headers = h("input", { id: "why-header", name: "header", autocomplete: "off", spellcheck: "false", placeholder: "x-user=alice, end-user=bob", value: query.getAll("header").join(", ") });
  const gateway = h("input", { id: "why-gateway", name: "gateway", type: "checkbox", checked: query.get("gateway") === "true" });
  const answer = h("div", { class: "answer" });
  const proxies = suggest(from, "why-proxies", async (text) => (await get("proxies", { name: text, limit: 20 }, signal)).items.map((one) => one.name));
  const hosts = suggest(to, "why-hosts", async (text) => (await get("services", { host: text, limit: 20 }, signal)).items.map((one) => one.host));
  const field = (control, text, kind = "") => h("div", { class: `field ${kind}` }, h("label", { for: control.id }, text), control);

  /** The words of `pilotfish why`; headers as the field has them. */
  const command = () => [
    "why", label ?? from.value.trim(), "--to", to.value.trim(),
    path.value.trim() && ["--path", path.value.trim()],
    method.value !== "GET" && ["--method", method.value],
    headers.value.split(",").map((one) => one.trim()).filter(Boolean).map((one) => ["--header", one]),
    !proxy && gateway.checked && "--gateway",
  ].flat(2);

  async function ask() {
    const asked = { to: to.value.trim(), path: path.value.trim(), method: method.value, header: headers.value.split(",").map((one) => one.trim()).filter(Boolean), gateway: !proxy && gateway.checked };
    const who = proxy ?? from.value.trim();
    if (!who || !asked.to) return;
    amend({ ...(proxy ? {} : { proxy: who, gateway: asked.gateway }), to: asked.to, path: asked.path, method: asked.method === "GET" ? "" : asked.method, header: asked.header.join(", ") });
    try {
      const found = await get("why", { proxy: who, ...asked }, signal);
      replace(answer, shown(found, asked.gateway));
      announce(found.outcome);
    } catch (error) {
      if (!signal.aborted) replace(answer, failure(error));
    }
  }

  const submit = (event) => {
    event.preventDefault();
    ask();
  };
  replace(
    place,
    h(
      "form",
      { class: "filters", "aria-label": proxy ? `A request of ${label}` : "A request", onsubmit: submit },
      !proxy && field(from, "From the proxy or Pod", "wide"),
      field(to, "To host[:port]", "wide"),
      field(path, "Path"),
      field(method, "Method"),
      field(headers, "Headers", "wide"),
      !proxy && h("div", { class: "field check" }, gateway, h("label", { for: gateway.id }, "a gateway that is not connected")),
      h("button", { type: "submit", class: "main" }, "Why?"),
      copyCommand(command),
      proxies,
      hosts,
    ),
    answer,
  );
  if (to.value) ask();
}

const VERDICTS = { ok: ["good", "ok"], doubtful: ["doubt", "doubtful"], ends: ["bad", "ends here"] };

/** An answer: what becomes of the request, then step by step. */
function shown(why, gateway) {
  return [
    h("p", { class: `outcome ${why.reaches ? "good" : "bad"}` }, why.outcome),
    h("p", {}, h("span", { class: "mono" }, `${why.proxy} → ${why.request}`), why.connected === false && [" ", badge("none", `not connected: answered for the ${gateway ? "gateway that it would be" : "sidecar that it would have"}`)]),
    h("ol", { class: "steps" }, why.steps.map(step)),
    why.endpoints.length > 0 && more(`Endpoints that can take it (${why.endpoints.length})`, why.endpoints.map((one) => h("li", { class: "mono" }, one)), why.endpoints.length <= 3),
    why.dropped?.length > 0 && more(`Endpoints that it does not get (${why.dropped.length})`, why.dropped.map(dropped), why.dropped.length <= 5),
  ];
}

const more = (title, items, open) => h("details", { open }, h("summary", {}, title), h("ul", { class: "lines" }, items));

const dropped = (one) => h("li", {}, h("span", { class: "mono" }, one.what), `: ${one.why}`);

function step(one) {
  const [how, word] = VERDICTS[one.verdict] ?? VERDICTS.ok;
  return h(
    "li",
    {},
    h("div", {}, badge(how, one.step, word), how !== "good" && h("span", { class: "hidden" }, word)),
    h(
      "div",
      {},
      h("div", { class: "said" }, one.chosen && h("strong", {}, one.chosen), one.chosen && one.text && ": ", one.text),
      one.decidedBy?.length > 0 && h("div", { class: "by" }, "by ", one.decidedBy.map((name, at) => [at > 0 && ", ", objectName(name)])),
      one.others?.length > 0 && others(one.others),
    ),
  );
}

function others(all) {
  if (all.length <= 3) return all.map((one) => h("div", { class: "other" }, `not ${one.what}: ${one.why}`));
  return h("details", { class: "other" }, h("summary", {}, `${all.length} others were considered`), h("ul", { class: "lines" }, all.map(dropped)));
}

