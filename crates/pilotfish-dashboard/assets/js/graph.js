// A graph as SVG: boxes that are links, and lines between them. What can be reached with a mouse can be reached with the keyboard.

import { h, s } from "./dom.js";

const BOX = { width: 186, height: 46 };

/**
 * `nodes`: id, label, note, how (good, busy, bad, doubt, none), href. `edges`: from, to, label, dashed, routed.
 * Answers with an element that scrolls where it is large.
 */
export async function graph({ label, nodes, edges, direction = "LR" }) {
  const { Graph, layout } = await import("../vendor/dagre/dagre.esm.js");
  const g = new Graph({ multigraph: true });
  g.setGraph({ rankdir: direction, nodesep: 14, ranksep: 70, edgesep: 10, marginx: 12, marginy: 12 });
  g.setDefaultEdgeLabel(() => ({}));
  for (const node of nodes) g.setNode(node.id, { ...BOX });
  edges.forEach((edge, at) => g.setEdge(edge.from, edge.to, {}, String(at)));
  layout(g);
  const { width, height } = g.graph();
  const lines = edges.map((edge, at) => line(edge, g.edge(edge.from, edge.to, String(at)).points));
  const boxes = nodes.map((node) => box(node, g.node(node.id)));
  const picture = s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": label },
    s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z", class: "head" }))),
    lines,
    boxes,
  );
  return h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": label }, picture);
}

/** A text that fits a box: what is cut off stands in the title. */
const fit = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function box(node, { x, y }) {
  const left = x - BOX.width / 2;
  const top = y - BOX.height / 2;
  const content = [
    s("rect", { x: left, y: top, width: BOX.width, height: BOX.height, rx: 6 }),
    s("rect", { x: left, y: top, width: 5, height: BOX.height, rx: 2, class: "side" }),
    s("text", { x: left + 14, y: top + 19, class: "label" }, fit(node.label, 23)),
    s("text", { x: left + 14, y: top + 36, class: "note" }, fit(node.note ?? "", 29)),
    s("title", {}, [node.label, node.note, node.title].filter(Boolean).join("\n")),
  ];
  const how = `node ${node.how ?? "none"} ${node.self ? "self" : ""}`;
  if (!node.href) return s("g", { class: how }, content);
  return s("a", { class: how, href: node.href }, content);
}

function line(edge, points) {
  const [first, ...rest] = points;
  let path = `M${first.x} ${first.y}`;
  for (let at = 0; at < rest.length - 1; at += 1) {
    const middle = at === rest.length - 2 ? rest[at + 1] : { x: (rest[at].x + rest[at + 1].x) / 2, y: (rest[at].y + rest[at + 1].y) / 2 };
    path += `Q${rest[at].x} ${rest[at].y} ${middle.x} ${middle.y}`;
  }
  if (rest.length === 1) path += `L${rest[0].x} ${rest[0].y}`;
  const centre = points[Math.floor(points.length / 2)];
  return s(
    "g",
    { class: `edge ${edge.dashed ? "dashed" : ""} ${edge.routed ? "routed" : ""}` },
    s("path", { d: path, "marker-end": "url(#arrow)" }),
    edge.label && s("text", { x: centre.x, y: centre.y - 5 }, edge.label),
  );
}
