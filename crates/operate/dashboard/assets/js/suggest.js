// Names that a field offers while somebody types.

import { h, replace, debounce } from "./dom.js";

/** The list of a field: `ask` answers with the names that contain a text. A failure offers nothing, and the field still takes any text. */
export function suggest(input, id, ask) {
  const list = h("datalist", { id });
  input.setAttribute("list", id);
  let newest = 0;
  const offer = async () => {
    newest += 1;
    const mine = newest;
    const names = await ask(input.value.trim()).catch(() => []);
    if (mine === newest) replace(list, [...new Set(names)].map((value) => h("option", { value })));
  };
  input.addEventListener("focus", offer, { once: true });
  input.addEventListener("input", debounce(150, offer));
  return list;
}
