// Pages by the part of the address behind `#`: `#/services/catalog.shop?namespace=shop`.

import { address } from "./api.js";

/** A link to a page: parts of the path, and a query. */
export function link(parts, query) {
  return `#/${address(parts.map(encodeURIComponent).join("/"), query)}`;
}

/** Where the address leads: the parts of the path, decoded, and the query. */
export function read(hash = location.hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const decode = (part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  };
  return { parts: path.split("/").filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

/** Changes the query of the address without a step in the history and without opening the page anew. */
export function amend(query) {
  const { parts, query: before } = read();
  const merged = { ...Object.fromEntries(before), ...query };
  history.replaceState(null, "", link(parts, merged));
}

/** Calls with each place that the address leads to. */
export function follow(go) {
  window.addEventListener("hashchange", () => go(read()));
  go(read());
}
