// What was measured, second by second, as charts.

import { h, replace } from "./dom.js";
import { get } from "./api.js";
import * as live from "./live.js";
import * as format from "./format.js";

const KEPT = 600;
const HEIGHT = 140;

/** Each chart: its title, the least that the axis shows, how a value is written, and its lines: name, colour, and what of a sample it shows. */
const CHARTS = [
  {
    title: "Push latency",
    least: 5,
    show: format.milliseconds,
    lines: [["median", 1, (s) => s.convergence?.p50], ["p99", 2, (s) => s.convergence?.p99]],
    points: true,
  },
  {
    title: "Time to compute a change",
    least: 5,
    show: format.milliseconds,
    lines: [["median", 1, (s) => s.publish?.p50], ["p99", 2, (s) => s.publish?.p99]],
    points: true,
  },
  { title: "Responses a second", least: 10, show: (v) => format.number(Math.round(v)), lines: [["sent", 1, (s) => s.pushes], ["refused", 2, (s) => s.rejects]] },
  { title: "Bytes sent a second", least: 1_000, show: format.bytes, lines: [["bytes", 1, (s) => s.bytes]] },
  { title: "Processors in use", least: 0.1, show: (v) => v.toFixed(2), lines: [["processors", 1, (s) => s.cpu]] },
  { title: "Memory", least: 1_000_000, show: format.bytes, lines: [["resident", 1, (s) => s.resident]] },
];

/** Draws all charts into a place, and keeps them current. */
export async function charts(place, signal) {
  const samples = [];
  const drawn = CHARTS.map((one) => chart(one));
  replace(place, drawn.map((one) => one.element));
  const draw = () => drawn.forEach((one) => one.draw(samples));
  const resize = new ResizeObserver(() => drawn.forEach((one) => one.resize()));
  resize.observe(place);
  const repaint = () => drawn.forEach((one) => one.forget()) || draw();
  window.addEventListener("pilotfish-theme", repaint, { signal });
  signal.addEventListener("abort", () => {
    resize.disconnect();
    drawn.forEach((one) => one.forget());
  });
  try {
    samples.push(...await get("samples", {}, signal));
  } catch { /* It begins with the next one. */ }
  if (signal.aborted) return;
  draw();
  live.follow("sample", (sample) => {
    if (samples.length && sample.at <= samples.at(-1).at) return;
    samples.push(sample);
    if (samples.length > KEPT) samples.shift();
    draw();
  }, signal);
}

/** A colour as a canvas takes it: the text of a custom property still says `light-dark()`, that of `color` does not. */
function colour(name) {
  const probe = h("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

function chart({ title, show, lines, points, least }) {
  const now = h("p", { class: "now" });
  const place = h("div", { class: "plot", role: "img", "aria-label": title });
  const element = h("div", { class: "chart" }, h("h3", {}, title), now, place);
  let plot = null;
  const width = () => Math.max(160, place.clientWidth);

  function make(data) {
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const line = ([label, series]) => ({
      label,
      stroke: colour(`--series-${series}`),
      width: 1.6,
      // Latencies are known only of seconds with pushes: a line between them would invent the others.
      spanGaps: points !== true,
      dash: series === 2 ? [5, 4] : undefined,
      points: { show: points === true, size: 4 },
    });
    return new window.uPlot({
      width: width(),
      height: HEIGHT,
      legend: { show: false },
      cursor: { show: false },
      scales: { y: { range: (_, min, max) => [0, Math.max(max ?? 0, least) * 1.15] } },
      axes: [{ ...axis, values: (_, all) => all.map((second) => format.clock(second * 1_000)) }, { ...axis, size: 62, values: (_, all) => all.map(show) }],
      series: [{}, ...lines.map(line)],
    }, data, place);
  }

  return {
    element,
    draw(samples) {
      const data = [samples.map((s) => s.at / 1_000), ...lines.map(([, , of]) => samples.map((s) => of(s) ?? null))];
      if (samples.length === 0) return;
      const text = lines.map(([name, , of]) => {
        const value = samples.map(of).findLast((one) => one !== undefined && one !== null);
        return value === undefined ? null : `${name} ${show(value)}`;
      }).filter(Boolean).join(", ");
      now.textContent = text || "nothing yet";
      place.setAttribute("aria-label", `${title}: ${text || "nothing yet"}`);
      if (plot) plot.setData(data); else plot = make(data);
    },
    resize: () => plot?.setSize({ width: width(), height: HEIGHT }),
    forget() {
      plot?.destroy();
      plot = null;
    },
  };
}
