// Numbers and times as people read them.

const NUMBER = new Intl.NumberFormat("en");
const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });
const CLOCK = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export const number = (value) => NUMBER.format(value);

/** `3 services`, `1 service`. */
export const count = (value, one, several = `${one}s`) => `${number(value)} ${value === 1 ? one : several}`;

export function bytes(value) {
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (value < 1_000 || unit === "GB") {
      return `${value < 10 && unit !== "B" ? value.toFixed(1) : Math.round(value)} ${unit}`;
    }
    value /= 1_000;
  }
  return "";
}

export function milliseconds(value) {
  if (value >= 10_000) return `${Math.round(value / 1_000)} s`;
  if (value >= 1_000) return `${(value / 1_000).toFixed(1)} s`;
  return value >= 10 ? `${Math.round(value)} ms` : `${value.toFixed(1)} ms`;
}

/** `3 min`: how long something is ago, or lasts. */
export function span(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3_600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86_400) return `${Math.floor(whole / 3_600)} h ${Math.floor((whole % 3_600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3_600)} h`;
}

/** The local time of an RFC 3339 text or of milliseconds. */
export function time(value) {
  const date = new Date(value);
  return Number.isNaN(date.getTime()) ? "" : TIME.format(date);
}

/** `15:04:05`. */
export const clock = (milliseconds) => CLOCK.format(milliseconds);

/** `3 min ago`; empty for a time that is not known. */
export function ago(value) {
  const at = new Date(value).getTime();
  return Number.isNaN(at) ? "" : `${span((Date.now() - at) / 1_000)} ago`;
}

/** An object as the API's provenance names it: `Service shop/catalog`. */
export function provenance(from) {
  if (!from) return "";
  if (from.kind) return `${from.kind} ${from.namespace ? `${from.namespace}/` : ""}${from.name}`;
  return [from.registry, from.id].filter(Boolean).join(" ");
}
