"use strict";
// Pictures: Chart.js on canvases, in the colours of the style. A picture is drawn when the page has nothing else to do,
// so that a reader can scroll, choose and type at once.

/// Light, dark, or the paper's while the page is printed.
const colorOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const faded = (name, share) => Chart.helpers.color(colorOf(name)).alpha(share).rgbString();

// ---- when ------------------------------------------------------------------------------------------------------------

const waiting = new Map();  // holder -> what draws in it; a later wish replaces an earlier one
let drawingSoon = 0;
function drawNext() {
  drawingSoon = 0;
  const next = waiting.entries().next();
  if (!next.done) {
    const [holder, draw] = next.value;
    waiting.delete(holder);
    draw();
  }
  if (waiting.size) drawingSoon = setTimeout(drawNext, 0);
  else document.documentElement.dataset.drawn = "yes";
}
function drawLater(holder, draw) {
  waiting.delete(holder);
  waiting.set(holder, draw);
  delete document.documentElement.dataset.drawn;
  if (!drawingSoon) drawingSoon = setTimeout(drawNext, 0);
}
function drawAllNow() {
  while (waiting.size) drawNext();
}

// ---- what ------------------------------------------------------------------------------------------------------------

const charts = new Map();    // holder -> Chart
const pictures = new Map();  // holder -> how it is drawn again, in other colours
const legends = new Map();   // id -> entries
/// Takes what is drawn or waits to be drawn out of `holder`.
function empty(holder) {
  Array.from(pictures.keys()).filter((known) => holder.contains(known)).forEach((known) => {
    if (charts.has(known)) charts.get(known).destroy();
    [charts, pictures, waiting].forEach((map) => map.delete(known));
  });
  delete holder.dataset.marks;
  return clear(holder);
}

/// A picture of `height` pixels in `holder`: settings(width) gives {label, datasets, scales, padding, under, over};
/// under and over draw on the canvas before and after the marks: (context, chart). Points are {x, y, lines} with what
/// the tooltip says.
function picture(holder, height, settings) {
  empty(holder);
  pictures.set(holder, () => picture(holder, height, settings));
  const frame = holder.appendChild(element("div", "canvas"));
  frame.style.height = height + "px";
  drawLater(holder, () => {
    const { label, datasets, scales, padding, under, over } = settings(frame.clientWidth);
    const canvas = frame.appendChild(element("canvas"));
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", label);
    holder.dataset.marks = sum(datasets.map((dataset) => (dataset.isLine ? 0 : dataset.data.length)));
    charts.set(holder, new Chart(canvas, {
      type: "scatter",
      data: { datasets: datasets.slice().reverse() },  // the first lies lowest, as a reader of the code expects
      options: {
        animation: false, responsive: true, maintainAspectRatio: false, resizeDelay: 100,
        layout: { padding: Object.assign({ top: 4, right: 12, bottom: 0, left: 0 }, padding) },
        interaction: { mode: "nearest", intersect: true },
        scales,
        plugins: { legend: { display: false }, tooltip: { enabled: false, external: tooltipOf } },
      },
      plugins: [{
        id: "attune",
        beforeDatasetsDraw: (chart) => under && under(chart.ctx, chart),
        afterDatasetsDraw: (chart) => over && over(chart.ctx, chart),
      }],
    }));
  });
}

/// All pictures and legends anew, as the style's colours are now.
function recolor() {
  Array.from(legends).forEach(([id, entries]) => legend(id, entries));
  Array.from(pictures.values()).forEach((draw) => draw());
}

function tooltipOf({ chart, tooltip: shown }) {
  const point = shown.opacity > 0 && shown.dataPoints && shown.dataPoints[0] && shown.dataPoints[0].raw;
  if (!point || !point.lines) return hideTooltip();
  const box = chart.canvas.getBoundingClientRect();
  showTooltip(box.left + window.scrollX + shown.caretX, box.top + window.scrollY + shown.caretY, point.lines());
}

// ---- marks -----------------------------------------------------------------------------------------------------------

const failureMarks = {
  infeasible: ["star", 4], compile_failed: ["triangle", 3], compile_timed_out: ["triangle-down", 3], spilled: ["rect", 2],
  serialized: ["rectRot", 2], launch_failed: ["rectRot", 0], crashed: ["cross", 0], wrong_result: ["crossRot", 1],
  timed_out: ["triangle-down", 1], out_of_memory: ["rect", 0],
};
const failureMark = (status) => {
  const [shape, color] = failureMarks[status] || ["circle", 4];
  return { shape, color: "--fail-" + color };
};
/// The statuses of failed rows in the order of the table above, then those that it does not know.
const failuresOf = (rows) => {
  const present = distinct(rows.filter((row) => row.status !== "ok").map((row) => row.status));
  return Object.keys(failureMarks).filter((status) => present.includes(status))
    .concat(inOrder(present.filter((status) => !failureMarks[status])));
};
const peerShapes = ["rectRot", "triangle", "rect", "triangle-down"];
const peerMark = (place) => ({ shape: peerShapes[place % peerShapes.length], color: "--peer-" + (place % peerShapes.length) });

/// A mark as Chart.js draws it: filled, or hollow.
function styleOf({ shape, color, size, hollow, opacity }) {
  const drawn = shape === "cross" || shape === "crossRot" || shape === "star";  // lines, not areas
  return {
    pointStyle: shape === "triangle-down" ? "triangle" : shape, rotation: shape === "triangle-down" ? 180 : 0,
    pointRadius: size, pointHoverRadius: size + 1, hitRadius: Math.max(2, 7 - size),
    backgroundColor: hollow ? colorOf("--paper") : faded(color, opacity || 1),
    borderColor: hollow || drawn ? colorOf(color) : "transparent", borderWidth: hollow || drawn ? 1.75 : 0,
  };
}
/// A dataset of marks that look the same; `points` have x, y and lines.
const marks = (points, look) => Object.assign({ data: points, showLine: false, yAxisID: "y" }, styleOf(look));
/// A line through points: no marks, nothing to point at.
const line = (points, { color, dashed, width, stepped }) => ({
  data: points, isLine: true, showLine: true, yAxisID: "y", pointRadius: 0, pointHitRadius: 0, pointHoverRadius: 0, borderColor: colorOf(color),
  borderWidth: width || 1.5, borderDash: dashed ? [5, 4] : [], stepped: stepped ? "after" : false, fill: false, tension: 0,
});

function legend(id, entries) {
  const node = clear(byId(id));
  legends.set(id, entries);
  const scale = window.devicePixelRatio || 1;
  entries.forEach((entry) => {
    const item = node.appendChild(element("span"));
    const canvas = item.appendChild(element("canvas"));
    const width = entry.line ? 26 : 14;
    canvas.width = width * scale;
    canvas.height = 14 * scale;
    canvas.style.width = width + "px";
    canvas.style.height = "14px";
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    if (entry.line) {
      strokeLine(context, 0, 7, 26, 7, { color: colorOf(entry.color), width: 2, dashed: entry.dashed });
    } else {
      const style = styleOf(Object.assign({ size: 5 }, entry));
      context.fillStyle = style.backgroundColor;
      context.strokeStyle = style.borderColor;
      context.lineWidth = style.borderWidth;
      Chart.helpers.drawPoint(context, { pointStyle: style.pointStyle, rotation: style.rotation, radius: 5, borderWidth: style.borderWidth }, 7, 7);
    }
    item.appendChild(document.createTextNode(entry.title));
  });
}

// ---- by hand on the canvas -------------------------------------------------------------------------------------------

const kFont = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif";
const fontOf = (size, bold) => (bold ? "600 " : "") + size + "px " + kFont;

function strokeLine(context, x1, y1, x2, y2, { color, width, dashed }) {
  context.save();
  context.strokeStyle = color;
  context.lineWidth = width || 1;
  context.setLineDash(dashed ? [5, 4] : []);
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
  context.restore();
}

/// Words on a canvas, not wider than `room`: smaller where they are too long, clipped where that is not enough.
function write(context, words, x, y, settings) {
  const { align, color, size, bold, room, halo, turn } = Object.assign({ align: "left", color: "--soft", size: 12 }, settings);
  context.save();
  context.translate(x, y);
  if (turn) context.rotate(turn);
  context.textAlign = align;
  context.textBaseline = "middle";
  let shown = words, letters = size;
  context.font = fontOf(letters, bold);
  const wide = () => room && context.measureText(shown).width > room;
  while (wide() && letters > 10) context.font = fontOf(--letters, bold);
  while (wide() && shown.length > 4) shown = shown.slice(0, shown.endsWith("…") ? -2 : -1) + "…";
  if (halo) {
    context.strokeStyle = colorOf("--paper");
    context.lineWidth = 4;
    context.lineJoin = "round";
    context.strokeText(shown, 0, 0);
  }
  context.fillStyle = colorOf(color);
  context.fillText(shown, 0, 0);
  context.restore();
}
function widestOf(labels, size, bold) {
  const context = widestOf.context || (widestOf.context = element("canvas").getContext("2d"));
  context.font = fontOf(size, bold);
  return most(labels.map((label) => context.measureText(label).width));
}

// ---- axes ------------------------------------------------------------------------------------------------------------

/// An axis from `low` to `high` with marks at `at` (values), or where Chart.js puts them.
function axis(kind, [low, high], settings) {
  const { title, at, format, grid, side, reverse, width, size, stack, share, most: ticks } = Object.assign({ format: tick, grid: true, size: 11 }, settings);
  return {
    type: kind, min: low, max: high, position: side, reverse: Boolean(reverse), stack, stackWeight: share, bounds: "data",
    title: { display: Boolean(title), text: title, color: colorOf("--soft"), font: { family: kFont, size: 12 }, padding: 2 },
    grid: { color: colorOf("--grid"), drawOnChartArea: grid, drawBorder: true, borderColor: colorOf("--line"), tickLength: 4, tickColor: colorOf("--line") },
    ticks: {
      color: colorOf("--soft"), font: { family: kFont, size }, autoSkip: !at, maxTicksLimit: ticks || 8, maxRotation: 0, minRotation: 0,
      callback: (value, i) => format(value, i), includeBounds: false,
    },
    afterBuildTicks: at ? (scale) => (scale.ticks = at.map((value) => ({ value }))) : undefined,
    afterFit: width ? (scale) => (scale.width = width) : undefined,
  };
}
const logAxis = (domain, count, settings) => axis("logarithmic", domain, Object.assign({ at: logTicks(domain[0], domain[1], count) }, settings));
const isNarrow = (width) => width < 640;
