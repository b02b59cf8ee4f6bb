// Envoy's JSON as YAML, for reading.

const PLAIN = /^[A-Za-z_/@.][A-Za-z0-9_/@.:%+-]*$/;
const WORDS = new Set(["true", "false", "null", "yes", "no", "on", "off", "~", "y", "n", "True", "False", "Null", "Yes", "No", "On", "Off", "TRUE", "FALSE", "NULL", "YES", "NO", "ON", "OFF"]);

function scalar(value) {
  if (typeof value !== "string") return String(value);
  const plain = PLAIN.test(value) && !WORDS.has(value) && !value.endsWith(":");
  return plain ? value : JSON.stringify(value);
}

const isEmpty = (value) => typeof value === "object" && value !== null && Object.keys(value).length === 0;
const isNested = (value) => typeof value === "object" && value !== null && !isEmpty(value);
const empty = (value) => (Array.isArray(value) ? "[]" : "{}");

function lines(value, indent, out) {
  const pad = "  ".repeat(indent);
  if (Array.isArray(value)) {
    for (const item of value) {
      if (!isNested(item)) {
        out.push(`${pad}- ${isEmpty(item) ? empty(item) : scalar(item)}`);
        continue;
      }
      const inner = [];
      lines(item, indent + 1, inner);
      inner[0] = `${pad}- ${inner[0].slice(2 * (indent + 1))}`;
      out.push(...inner);
    }
    return;
  }
  for (const [name, item] of Object.entries(value)) {
    if (!isNested(item)) {
      out.push(`${pad}${scalar(name)}: ${isEmpty(item) ? empty(item) : scalar(item)}`);
      continue;
    }
    out.push(`${pad}${scalar(name)}:`);
    lines(item, indent + 1, out);
  }
}

/** A value as YAML. */
export function yaml(value) {
  if (!isNested(value)) return isEmpty(value) ? empty(value) : scalar(value);
  const out = [];
  lines(value, 0, out);
  return out.join("\n");
}
