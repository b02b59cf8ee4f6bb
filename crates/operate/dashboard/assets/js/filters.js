// The form above a list: what is typed and chosen is in the address, so that a link shows the same list.

import { h, debounce } from "./dom.js";
import { amend, read } from "./router.js";

/** `fields`: name, label, and `options` (pairs of value and text) where something is chosen. `onchange` gets all values. */
export function filters(fields, onchange) {
  const query = read().query;
  const values = Object.fromEntries(fields.map(({ name }) => [name, query.get(name) ?? ""]));
  const change = (name, value) => {
    values[name] = value;
    amend({ [name]: value });
    onchange(values);
  };
  const typed = debounce(150, change);
  const control = ({ name, label, options, hint }) => {
    const id = `f-${name}`;
    const chosen = (event) => change(name, event.target.value);
    const control = options
      ? h("select", { id, onchange: chosen }, options.map(([value, text]) => h("option", { value, selected: value === values[name] }, text)))
      : h("input", { id, type: "search", placeholder: hint, autocomplete: "off", spellcheck: "false", value: values[name], oninput: (event) => typed(name, event.target.value.trim()) });
    return h("div", { class: "field" }, h("label", { for: id }, label), control);
  };
  const form = h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, fields.map(control));
  return { form, values };
}
