// Names of objects as links to their pages.

import { h } from "./dom.js";
import { link } from "./router.js";
import { folded } from "./parts.js";
import { provenance } from "./format.js";

const OBJECT = /^([A-Z][A-Za-z0-9]*) (\S+)$/;

/** The page of an object that the API names `VirtualService shop/catalog`; nothing for entries of registries. */
export function objectAddress(name) {
  const [, kind, rest] = OBJECT.exec(name ?? "") ?? [];
  return kind ? link(["objects", `${kind}/${rest}`]) : undefined;
}

/** A name, as a link where it is that of an object. */
export function objectName(name, title) {
  const href = objectAddress(name);
  return href ? h("a", { href, title }, name) : title ? h("span", { title }, name) : name;
}

/** The object that made something. */
export const madeBy = (from, title) => objectName(provenance(from), title);

/** Names, one below the other, of which the first are shown. */
export const objectNames = (names) => folded(names.map((name) => objectName(name)));
