// The admin API, /api/v1.

/** Why a question has no answer: what the API says, or what the browser says of it. */
export class Failure extends Error {
  constructor(answer) {
    super(answer.error);
    this.kind = answer.kind;
    this.hint = answer.hint ?? "";
    this.names = answer.names ?? [];
  }
}

const TIMEOUT = 20_000;

/** `path?a=1&b=2`: what is null, undefined or empty is left out; lists repeat. */
export function address(path, query) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of [value].flat()) {
      if (one !== null && one !== undefined && one !== "" && one !== false) params.append(name, one);
    }
  }
  const text = params.toString();
  return text ? `${path}?${text}` : path;
}

/** Asks the API, or, by a path that begins with a slash, a debug page. */
export async function get(path, query, signal) {
  const timeout = AbortSignal.timeout(TIMEOUT);
  const signals = signal ? AbortSignal.any([signal, timeout]) : timeout;
  let response;
  try {
    response = await fetch(address(path.startsWith("/") ? path : `/api/v1/${path}`, query), { signal: signals, cache: "no-store" });
  } catch (error) {
    if (signal?.aborted) throw error;
    const late = timeout.aborted;
    throw new Failure({
      kind: "unavailable",
      error: late ? "the control plane did not answer in time" : "the control plane cannot be reached",
      hint: "is it running, and is the port still forwarded?",
    });
  }
  const text = await response.text();
  let answer = null;
  try { answer = JSON.parse(text); } catch { /* It is no JSON: a page of a limit, or of a proxy between. */ }
  if (response.ok && answer !== null) return answer;
  throw new Failure(answer?.error ? answer : { kind: "unavailable", error: text.trim() || response.statusText });
}
