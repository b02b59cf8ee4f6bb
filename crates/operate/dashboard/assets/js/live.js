// What happens, as it happens: one stream of events for the page. It is closed while nobody sees the page.

const KINDS = ["overview", "changes", "sample"];

const listeners = new Map(KINDS.map((kind) => [kind, new Set()]));
const newest = new Map();
const states = new Set();
let source = null;
let retry = 0;
let state = "connecting";

function tell(next) {
  if (state === next) return;
  state = next;
  for (const listener of states) listener(state);
}

function open() {
  if (source || document.hidden) return;
  clearTimeout(retry);
  source = new EventSource("/api/v1/events");
  source.addEventListener("open", () => tell("live"));
  source.addEventListener("error", () => {
    tell("lost");
    // A refusal ends it for good; anything else the browser mends by itself.
    if (source?.readyState === EventSource.CLOSED) {
      source = null;
      retry = setTimeout(open, 5_000);
    }
  });
  for (const kind of KINDS) {
    source.addEventListener(kind, (event) => {
      const value = JSON.parse(event.data);
      newest.set(kind, value);
      for (const listener of listeners.get(kind)) listener(value);
    });
  }
}

function close() {
  clearTimeout(retry);
  source?.close();
  source = null;
  tell("paused");
}

/** Calls with the newest value of a kind, now and whenever there is another, until `signal` aborts. */
export function follow(kind, listener, signal) {
  const all = listeners.get(kind);
  all.add(listener);
  signal?.addEventListener("abort", () => all.delete(listener));
  if (newest.has(kind)) listener(newest.get(kind));
}

/** Calls whenever `part` of the newest value of a kind is another than it was before. */
export function followPart(kind, part, listener, signal) {
  let known;
  follow(kind, (value) => {
    const next = part(value);
    if (known !== undefined && known !== next) listener();
    known = next;
  }, signal);
}

/** Calls with `connecting`, `live`, `lost` or `paused`. */
export function followState(listener) {
  states.add(listener);
  listener(state);
}

export function start() {
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  window.addEventListener("pagehide", close);
  open();
}
