// A page that is one long list: filters and the order are in the address, and it is asked for again when something has changed.

import { h, replace, throttle } from "../dom.js";
import { get } from "../api.js";
import * as live from "../live.js";
import { amend } from "../router.js";
import { filters } from "../filters.js";
import { rows } from "../rows.js";
import { copyCommand } from "../command.js";

/**
 * `path`: what of the API is listed. `fields`: the filters. `columns`: as `rows` takes them; the first one is the order where nothing else is chosen.
 * `command(values)`: the words of the command that lists the same. `state(numbers)`: of the overview, what differs when the list may.
 */
export function open({ root, query, signal, title }, { path, caption, noun, fields, columns, state, command }) {
  let list = null;
  let sort = query.get("sort") ?? columns[0].sort;
  const { form, values } = filters(fields, () => list.reload(true));
  const load = (offset, limit, stop) => get(path, { ...values, sort, offset, limit }, stop);
  const place = h("div");
  function show() {
    list = rows({ caption, noun, columns, load, signal, sort, onsort: (by) => {
      sort = by;
      amend({ sort });
      show();
    } });
    replace(place, list.element);
  }
  form.append(copyCommand(() => command(values).flat()));
  replace(root, h("h1", {}, title), form, place);
  show();
  live.followPart("overview", state, throttle(1_000, () => list.reload()), signal);
}
