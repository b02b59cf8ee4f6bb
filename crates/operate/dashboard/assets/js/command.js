// The command of `pilotfish` that shows the same as a page, to be copied.

import { h, announce } from "./dom.js";

const SAFE = /^[A-Za-z0-9_@%+=:,./-]+$/;
const DEFAULT_PORT = "15014";

/** A word as a shell takes it literally. */
export const quoted = (word) => (SAFE.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** `pilotfish WORDS`, with the address of this control plane where it is not the default one. Words that are empty, null or false are left out. */
export function commandOf(...words) {
  const { hostname, port } = window.location;
  const local = hostname === "127.0.0.1" || hostname === "localhost";
  const address = local && port === DEFAULT_PORT ? [] : ["--admin-address", `${hostname}:${port || "80"}`];
  return ["pilotfish", ...words.flat().filter(Boolean), ...address].map(quoted).join(" ");
}

/** A button that copies a command; `words` answers with its words when it is pressed. */
export function copyCommand(words) {
  const shown = h("code", { class: "copied", tabindex: "0", hidden: true });
  const button = h("button", { type: "button", class: "copy" }, "Copy as command");
  button.addEventListener("click", async () => {
    const text = commandOf(...words());
    shown.textContent = text;
    shown.hidden = false;
    try {
      await navigator.clipboard.writeText(text);
      announce(`Copied: ${text}`);
      button.textContent = "Copied";
    } catch {
      // Without a secure origin or the permission there is no clipboard: the text is selected instead.
      window.getSelection()?.selectAllChildren(shown);
      announce(text);
      button.textContent = "Press Ctrl+C to copy";
    }
    setTimeout(() => { button.textContent = "Copy as command"; }, 2_000);
  });
  return h("span", { class: "command" }, button, shown);
}
