// A graph as SVG: boxes that are links, and lines between them. What can be reached with a mouse can be reached with the keyboard.

import { h, s } from "./dom.js";

const BOX = { least: 110, most: 250, height: 46, padding: 14 };
const MARGIN = 12;
/** Height of the loop below a box that leads to itself. */
const LOOP = 24;
const FONTS = { label: "600 13px", note: "400 11.5px", edge: "400 11px" };

/**
 * `nodes`: id, label, note, how (good, busy, bad, doubt, none), href. `edges`: from, to, label, dashed, routed.
 * Answers with an element that scrolls where it is large.
 */
export async function graph({ label, nodes, edges, direction = "LR" }) {
  const { Graph, layout } = await import("../vendor/dagre/dagre.esm.js");
  const ruler = rulerOf();
  const boxes = new Map(nodes.map((node) => [node.id, sized(node, ruler)]));
  const labelled = edges.map((edge) => ({ ...edge, width: edge.label ? ruler("edge", edge.label) + 8 : 0 }));
  const g = new Graph({ multigraph: true });
  g.setGraph({ rankdir: direction, nodesep: 14, ranksep: 56, edgesep: 10, marginx: MARGIN, marginy: MARGIN });
  g.setDefaultEdgeLabel(() => ({}));
  for (const box of boxes.values()) g.setNode(box.id, { width: box.width, height: BOX.height });
  labelled.forEach((edge, at) => g.setEdge(edge.from, edge.to, { width: edge.width, height: edge.from === edge.to ? LOOP : edge.label ? 14 : 0, labelpos: "c" }, String(at)));
  layout(g);
  const parts = [...boxes.values()].map((box) => ({ ...box, ...at(g.node(box.id), box) }));
  const lines = labelled.map((edge, index) => (edge.from === edge.to ? loop(edge, g.node(edge.from)) : line(edge, g.edge(edge.from, edge.to, String(index)))));
  // dagre's own frame has neither loops nor the texts beside lines.
  const frame = frameOf([...parts, ...lines].map((one) => one.bounds));
  const picture = s(
    "svg",
    { viewBox: `${frame.left} ${frame.top} ${frame.width} ${frame.height}`, width: frame.width, height: frame.height, role: "group", "aria-label": label },
    s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z", class: "head" }))),
    lines.map((one) => one.element),
    parts.map(drawn),
  );
  return h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": label }, picture);
}

/** Measures texts in the fonts of the style sheet. */
function rulerOf() {
  const context = document.createElement("canvas").getContext("2d");
  const family = getComputedStyle(document.documentElement).fontFamily;
  return (font, text) => {
    context.font = `${FONTS[font]} ${family}`;
    return context.measureText(text).width;
  };
}

/** A text cut to a width; the whole of it stands in the title. */
function fit(text, most, width) {
  if (width(text) <= most) return text;
  let [some, all] = [0, text.length];
  while (some < all) {
    const middle = Math.ceil((some + all) / 2);
    if (width(`${text.slice(0, middle)}…`) <= most) some = middle; else all = middle - 1;
  }
  return `${text.slice(0, some)}…`;
}

/** A node with its texts, cut to the width of its box. */
function sized(node, ruler) {
  const room = BOX.most - 2 * BOX.padding;
  const label = fit(node.label, room, (text) => ruler("label", text));
  const note = fit(node.note ?? "", room, (text) => ruler("note", text));
  const widest = Math.ceil(Math.max(ruler("label", label), ruler("note", note)));
  return { ...node, whole: [node.label, node.note], label, note, width: Math.max(BOX.least, widest + 2 * BOX.padding) };
}

const at = ({ x, y }, { width }) => ({ left: x - width / 2, top: y - BOX.height / 2, x, y, bounds: [x - width / 2, y - BOX.height / 2, x + width / 2, y + BOX.height / 2] });

/** The frame around everything that is drawn. */
function frameOf(all) {
  const edge = (place, pick) => (all.length ? pick(...all.map((one) => one[place])) : 0);
  const [left, top] = [edge(0, Math.min) - MARGIN, edge(1, Math.min) - MARGIN];
  return { left, top, width: edge(2, Math.max) + MARGIN - left, height: edge(3, Math.max) + MARGIN - top };
}

function drawn(node) {
  const { left, top, width } = node;
  const content = [
    s("rect", { x: left, y: top, width, height: BOX.height, rx: 6 }),
    s("rect", { x: left, y: top, width: 5, height: BOX.height, rx: 2, class: "side" }),
    s("text", { x: left + BOX.padding, y: top + 19, class: "label" }, node.label),
    node.note && s("text", { x: left + BOX.padding, y: top + 36, class: "note" }, node.note),
    s("title", {}, [...node.whole, node.title].filter(Boolean).join("\n")),
  ];
  const how = `node ${node.how ?? "none"} ${node.self ? "self" : ""}`;
  if (!node.href) return s("g", { class: how }, content);
  return s("a", { class: how, href: node.href }, content);
}

function line(edge, { points, x, y }) {
  const [first, ...rest] = points;
  let path = `M${first.x} ${first.y}`;
  for (let step = 0; step < rest.length - 1; step += 1) {
    const middle = step === rest.length - 2 ? rest[step + 1] : { x: (rest[step].x + rest[step + 1].x) / 2, y: (rest[step].y + rest[step + 1].y) / 2 };
    path += `Q${rest[step].x} ${rest[step].y} ${middle.x} ${middle.y}`;
  }
  if (rest.length === 1) path += `L${rest[0].x} ${rest[0].y}`;
  const xs = points.map((point) => point.x);
  const ys = points.map((point) => point.y);
  if (edge.label) {
    xs.push(x - edge.width / 2, x + edge.width / 2);
    ys.push(y - 10, y + 6);
  }
  return { element: stroke(edge, path, { x, y: y + 4 }), bounds: [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)] };
}

/** A loop below a box. */
function loop(edge, { x, y }) {
  const bottom = y + BOX.height / 2;
  const path = `M${x + 16} ${bottom}C${x + 18} ${bottom + LOOP} ${x - 16} ${bottom + LOOP + 6} ${x - 16} ${bottom}`;
  const half = Math.max(30, edge.width / 2);
  return { element: stroke(edge, path, { x, y: bottom + LOOP + 5 }), bounds: [x - half, bottom, x + half, bottom + LOOP + 9] };
}

const stroke = (edge, path, place) => s(
  "g",
  { class: `edge ${edge.dashed ? "dashed" : ""} ${edge.routed ? "routed" : ""}` },
  s("path", { d: path, "marker-end": "url(#arrow)" }),
  edge.label && s("text", place, edge.label),
);
