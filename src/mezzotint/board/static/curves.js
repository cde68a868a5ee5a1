// Charts by uPlot: hover shows values, drag zooms all charts, a double click shows the whole run, the URL keeps the view.

import { askJSON, el, embedded, storeInUrl, urlValue, showMessage } from "./page.js";

const COLOURS = ["--s0", "--s1", "--s2", "--s3", "--s4", "--s5", "--s6", "--s7"];
const MARKS = {
  saved: "--quiet", resumed: "--s1", stopped: "--s4", bad: "--bad", settings: "--s3", diverged: "--bad",
  finished: "--quiet", exported: "--s2", asked: "--s5", slow: "--bad",
};
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const chartsBox = document.getElementById("charts");
const view = {
  axis: urlValue("axis") || "step", from: urlValue("from"), to: urlValue("to"),
  smooth: Number(urlValue("smooth")) || 0, log: urlValue("log") === "1", marks: urlValue("marks") !== "0",
};
const sync = typeof uPlot === "undefined" ? null : uPlot.sync("charts");
let plots = new Map(), hidden = new Set((urlValue("hide") || "").split("|").filter(Boolean)), last = null, timer = 0;

const needsExponent = (value) => value >= 1e5 || (value !== 0 && value < 1e-3);
const exponential = (value) => value === 0 ? "0" : Number(value.toPrecision(3)).toExponential().replace("e+", "e");
export const number = (value) => value === null || value === undefined ? "–"
  : needsExponent(Math.abs(value)) ? exponential(value) : String(Number(value.toPrecision(5)));

/** The tick labels of an axis, all in the same notation. */
function formatTicks(ticks) {
  const all = ticks.filter((one) => one !== null), most = Math.max(...all.map(Math.abs));
  const form = needsExponent(most) ? exponential : (one) => String(Number(one.toPrecision(5)));
  return ticks.map((one) => one === null ? "" : form(one));
}
const WHOLE = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat();
const CLOCK = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200,
  ...WHOLE.slice(0, 15).map((one) => one * 86400)];
const seconds = (value) => {
  const whole = Math.round(value), h = Math.floor(whole / 3600), m = Math.floor((whole % 3600) / 60);
  return h ? `${h}h${String(m).padStart(2, "0")}` : m ? `${m}m${String(whole % 60).padStart(2, "0")}` : `${whole}s`;
};
const formatPosition = (value) => value === null ? "–" : view.axis === "time" ? seconds(value) : Math.round(value).toLocaleString("en");
const onAxis = (value) => view.axis === "time" ? seconds(value)
  : value >= 1e6 ? `${Number((value / 1e6).toPrecision(4))}M`
    : value >= 1e4 ? `${Number((value / 1e3).toPrecision(4))}k` : String(Number(value.toFixed(2)));

/** The name of an ordered curve; averaged weights have the same name and are dashed. */
const level = (one) => one.label.replace(/ averaged$/, "");

/** The colour of a curve. Ordered curves go from dark to light through distinguishable hues; others have distinct
 * colours. */
function colour(chart, index) {
  if (!chart.ordered) return css(COLOURS[index % COLOURS.length]);
  const levels = [...new Set(chart.series.map(level))], share = levels.indexOf(level(chart.series[index])) / Math.max(1, levels.length - 1);
  const dark = Number(css("--dark")), light = Number(css("--light"));
  return `oklch(${(dark + (light - dark) * share).toFixed(3)} 0.15 ${Math.round(320 - 255 * share)})`;
}

/** Labels the curves of an ordered chart at their right ends, without overlaps. */
function nameEnds(chart, plot) {
  if (!chart.ordered) return;
  const { ctx, bbox } = plot, step = 11 * devicePixelRatio, named = new Set();
  const ends = chart.series.map((one, index) => ({ index, text: level(one), y: plot.valToPos(lastOf(plot, index + 1), "y", true) }))
    .filter(({ index, text, y }) => plot.series[index + 1].show && Number.isFinite(y) && !named.has(text) && named.add(text))
    .sort((a, b) => a.y - b.y);
  ends.forEach((one, at) => { if (at) one.y = Math.max(one.y, ends[at - 1].y + step); });
  let floor = bbox.top + bbox.height;
  for (const one of [...ends].reverse()) { one.y = Math.min(one.y, floor); floor = one.y - step; }
  ctx.save();
  ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  for (const one of ends) {
    ctx.fillStyle = colour(chart, one.index);
    ctx.fillText(one.text, bbox.left + bbox.width + 5 * devicePixelRatio, one.y);
  }
  ctx.restore();
}

/** The last value of a curve, which the legend shows without hover. */
const lastOf = (plot, index) => plot.data[index].findLast((one) => one !== null && one !== undefined) ?? null;

/** An exponential moving average with bias correction, like the run's smoothed loss. */
function smoothValues(values, beta) {
  if (!beta) return values;
  let mean = 0, weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = beta * mean + (1 - beta) * value;
    weight = beta * weight + (1 - beta);
    return mean / weight;
  });
}

function joinSeries(series) {
  const tables = series.map((one) => [one.x, smoothValues(one.y, view.smooth)]);
  return tables.length ? uPlot.join(tables) : [[]];
}

function drawMarks(chart, plot) {
  if (!view.marks || !last) return;
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.lineWidth = devicePixelRatio;
  for (const mark of last.marks) {
    if (mark.x < plot.scales.x.min || mark.x > plot.scales.x.max) continue;
    const x = Math.round(plot.valToPos(mark.x, "x", true)) + 0.5;
    ctx.strokeStyle = css(MARKS[mark.kind] || "--quiet");
    ctx.globalAlpha = mark.kind === "saved" ? 0.35 : 0.8;
    ctx.setLineDash(mark.kind === "saved" ? [2, 4] : [5, 3]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.setLineDash([]);
  ctx.globalAlpha = 1;
  chart.series.forEach((one, index) => {
    if (!one.lowest || !plot.series[index + 1].show) return;
    const x = plot.valToPos(one.lowest[0], "x", true), y = plot.valToPos(one.lowest[1], "y", true);
    ctx.strokeStyle = colour(chart, index);
    ctx.lineWidth = 2 * devicePixelRatio;
    ctx.beginPath();
    ctx.arc(x, y, 5 * devicePixelRatio, 0, 2 * Math.PI);
    ctx.stroke();
  });
  ctx.restore();
}

function options(chart, width) {
  const grid = { stroke: css("--line"), width: 1 }, ink = css("--quiet");
  const font = "12px system-ui, sans-serif";
  return {
    padding: [null, chart.ordered ? 62 : null, null, null],
    width, height: chart.name === "Loss" || chart.name.startsWith("Loss, smoothed") ? 280 : chart.ordered ? 240 : 200,
    cursor: { sync: { key: sync.key, setSeries: false }, drag: { x: true, y: false, dist: 6 }, focus: { prox: 24 } },
    focus: { alpha: 0.35 },
    legend: { live: true },
    scales: { x: { time: false }, y: { distr: view.log ? 3 : 1 } },
    axes: [
      { stroke: ink, grid, ticks: grid, font, incrs: view.axis === "time" ? CLOCK : WHOLE, values: (_, ticks) => ticks.map(onAxis) },
      { stroke: ink, grid, ticks: grid, font, size: 64, values: (_, ticks) => formatTicks(ticks) },
    ],
    series: [
      { label: view.axis, value: (plot, v, _, at) => formatPosition(at === null ? lastOf(plot, 0) : v) },
      ...chart.series.map((one, index) => ({
        label: one.label, stroke: colour(chart, index) + (one.tag === "loss" ? "90" : ""), show: !hidden.has(one.tag), spanGaps: true,
        width: one.tag === "loss" ? 1 : 1.75, points: { show: one.x.length < 40, size: 5 },
        dash: chart.ordered && one.tag.includes("_shadow") ? [6, 4] : undefined,
        value: (plot, v, seriesIndex, at) => {
          const shown = at === null ? lastOf(plot, seriesIndex) : v;
          return shown === null || shown === undefined ? "–" : number(shown) + (chart.unit ? ` ${chart.unit}` : "");
        },
      })),
    ],
    hooks: {
      draw: [(plot) => { drawMarks(chart, plot); nameEnds(chart, plot); }],
      setSelect: [(plot) => {
        if (plot.select.width < 4) return;
        const from = plot.posToVal(plot.select.left, "x"), to = plot.posToVal(plot.select.left + plot.select.width, "x");
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        zoom(from, to);
      }],
      setSeries: [(plot, index, change) => {
        if (index === null || change.show === undefined) return;
        const tag = chart.series[index - 1].tag;
        if (change.show) hidden.delete(tag); else hidden.add(tag);
        storeInUrl({ hide: [...hidden].join("|") });
      }],
    },
  };
}

function describe(chart) {
  const ends = chart.series.map((one) => {
    const values = one.y.filter((value) => value !== null);
    const lowest = one.lowest ? `, lowest ${number(one.lowest[1])} at ${onAxis(one.lowest[0])}` : "";
    return `${one.label} ${values.length ? `${number(values[0])} to ${number(values.at(-1))}` : "without a finite value"}${lowest}`;
  });
  return `${chart.name}: ${ends.join("; ")}`;
}

const lowestText = (chart) => chart.series.filter((one) => one.lowest)
  .map((one) => `${one.label} lowest ${number(one.lowest[1])} at ${onAxis(one.lowest[0])}`).join(" · ");

function draw(answer) {
  last = answer;
  const seen = new Set();
  document.getElementById("no-curves").hidden = answer.charts.length > 0;
  for (const chart of answer.charts) {
    seen.add(chart.name);
    const shape = chart.series.map((one) => one.tag).join("|") + view.axis + view.log;
    let entry = plots.get(chart.name);
    if (entry && entry.shape !== shape) {
      entry.plot.destroy();
      entry.box.remove();
      plots.delete(chart.name);
      entry = null;
    }
    if (!entry) {
      const inner = el("div", { class: "plot" });
      const note = el("span", { class: "quiet" });
      const box = el("figure", { class: "chart", role: "group" }, el("figcaption", {}, el("strong", {}, chart.name), " ",
        el("span", { class: "quiet" }, [chart.help, chart.unit && `in ${chart.unit}`].filter(Boolean).join(", ")), " ", note), inner);
      chartsBox.append(box);
      entry = { box, inner, note, shape, chart, plot: null };
      entry.plot = new uPlot(options(chart, inner.clientWidth || 600), joinSeries(chart.series), inner);
      sync.sub(entry.plot);
      inner.addEventListener("dblclick", () => zoom(null, null));
      plots.set(chart.name, entry);
    } else {
      Object.assign(entry.chart, chart);
      entry.plot.setData(joinSeries(chart.series), false);
      if (entry.plot.cursor.idx === null) entry.plot.setLegend({ idx: null }, false);
    }
    const from = view.from === null ? answer.ends[0] : Number(view.from);
    const to = view.to === null ? answer.ends[1] : Number(view.to);
    entry.plot.setScale("x", { min: from, max: to > from ? to : from + 1 });
    entry.box.setAttribute("aria-label", describe(chart));
    entry.note.textContent = lowestText(chart) && `· ${lowestText(chart)}`;
  }
  for (const [name, entry] of plots) {
    if (!seen.has(name)) { entry.plot.destroy(); entry.box.remove(); plots.delete(name); }
  }
  [...chartsBox.children].sort((a, b) => order(answer, a) - order(answer, b)).forEach((one, index) => {
    if (chartsBox.children[index] !== one) chartsBox.append(one);
  });
  chartsBox.dataset.points = answer.read ?? "";
}

const order = (answer, box) => answer.charts.findIndex((chart) => plots.get(chart.name)?.box === box);

export async function refresh() {
  clearTimeout(timer);
  if (embedded) { draw(embedded.charts[view.axis]); return; }
  const url = new URL(chartsBox.dataset.url, location.href);
  url.searchParams.set("axis", view.axis);
  url.searchParams.set("width", Math.max(300, Math.round((chartsBox.clientWidth || 1000) * devicePixelRatio)));
  if (view.from !== null) url.searchParams.set("from", view.from);
  if (view.to !== null) url.searchParams.set("to", view.to);
  const answer = await askJSON(url);
  draw(answer);
  const reading = document.getElementById("reading");
  reading.textContent = answer.share < 1 ? `preview: ${Math.floor(answer.share * 100)} % of the lines read` : "";
  if (answer.share < 1) timer = setTimeout(() => refresh().catch(() => {}), 700);
}

function zoom(from, to) {
  view.from = from === null ? null : String(Number(from.toPrecision(8)));
  view.to = to === null ? null : String(Number(to.toPrecision(8)));
  storeInUrl({ from: view.from, to: view.to });
  document.getElementById("whole").hidden = view.from === null;
  refresh().catch((error) => showMessage(error.message));
}

function restyle() {
  for (const entry of plots.values()) { entry.plot.destroy(); entry.box.remove(); }
  plots = new Map();
  if (last) draw(last);
}

export function open() {
  const bind = (id, event, act) => document.getElementById(id)?.addEventListener(event, (one) => act(one.target));
  const axis = document.getElementById("axis"), smooth = document.getElementById("smooth");
  axis.value = view.axis;
  smooth.value = view.smooth;
  document.getElementById("log-y").checked = view.log;
  const marks = document.getElementById("marks");
  if (marks) marks.checked = view.marks;
  document.getElementById("whole").hidden = view.from === null;
  bind("axis", "change", (input) => { view.axis = input.value; storeInUrl({ axis: input.value }); zoom(null, null); });
  bind("smooth", "input", (input) => { view.smooth = Number(input.value); storeInUrl({ smooth: input.value === "0" ? null : input.value }); if (last) draw(last); });
  bind("log-y", "change", (input) => { view.log = input.checked; storeInUrl({ log: input.checked ? "1" : null }); restyle(); });
  bind("marks", "change", (input) => { view.marks = input.checked; storeInUrl({ marks: input.checked ? null : "0" }); for (const one of plots.values()) one.plot.redraw(); });
  bind("whole", "click", () => zoom(null, null));
  document.addEventListener("theme", restyle);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
  let width = chartsBox.clientWidth;
  new ResizeObserver(() => {
    if (chartsBox.clientWidth === width) return;
    width = chartsBox.clientWidth;
    for (const one of plots.values()) one.plot.setSize({ width: one.inner.clientWidth, height: one.plot.height });
  }).observe(chartsBox);
  return refresh();
}
