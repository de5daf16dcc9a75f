"use strict";
// "Model and measurement": what the cost model foretold beside what was measured.

const predicted = (rows) => standing(rows || []).filter((row) => !row.estimate && row.predicted_us > 0).sort(byPrediction);
const nearBest = () => whole((data.near_best - 1) * 100) + kNoBreak + "%";

function drawModel() {
  const problem = view.problem, quality = problem.model;
  const holder = byId("model-plot"), orderHolder = byId("model-order-plot");
  const order = predicted(problem.trials), chosen = order.filter((row) => row.ok);
  const first = order.slice(0, quality ? quality.first : 0);
  const others = [].concat(...view.shown.filter((p) => p !== problem).map((p) => predicted(p.trials).filter((row) => row.ok).map((row) => ({ row, p }))));
  byId("model-note").textContent = quality && quality.compared
    ? problem.name + ": " + plural(quality.compared, "config") +
      (quality.rank_correlation === null ? ", too few for a rank correlation" : ", rank correlation " + quality.rank_correlation.toFixed(2)) +
      "; of the model's first " + quality.first + ", " + quality.first_near_best + " lie within " + nearBest() + " of the best" +
      (quality.first_over_best > 0 ? " and the fastest takes " + fixed(3)(quality.first_over_best) + "× its time." : ".")
    : "Nothing was measured for " + problem.name + ": there is nothing to compare the model with.";
  empty(holder);
  empty(orderHolder);
  const none = !chosen.length && !others.length;
  legend("model-legend", none ? [] : [
    { shape: "circle", color: "--best", title: problem.name },
    { shape: "circle", color: "--accent", hollow: true, title: "the model's first " + (quality ? quality.first : 0) + " of it" },
    ...(others.length ? [{ shape: "circle", color: "--faint", title: "other shapes that are asked for" }] : []),
    { line: true, color: "--soft", dashed: true, title: chosen.length ? "left: measured as predicted" : "measured as predicted" },
    ...(chosen.length ? [{ shape: "rect", color: "--best", opacity: 0.2, title: "right: within " + nearBest() + " of the best" }] : []),
  ]);
  if (!none) drawPredictions(holder, { chosen, first, others });
  if (chosen.length) drawModelOrder(orderHolder, { order, first });
  table(byId("model-table"), [
    { title: "shape", value: (p) => p.name, className: "nowrap" },
    { title: "configs compared", value: (p) => whole(p.model.compared), number: true },
    { title: "rank correlation", value: (p) => p.model.rank_correlation === null ? "" : p.model.rank_correlation.toFixed(3), number: true },
    { title: "model's first", value: (p) => String(p.model.first), number: true },
    { title: "of them within " + nearBest(), value: (p) => String(p.model.first_near_best), number: true },
    { title: "fastest of them to best", value: (p) => p.model.first_over_best > 0 ? fixed(3)(p.model.first_over_best) : "", number: true },
    { title: "model's time of the best / measured", value: (p) => p.best.predicted_us > 0 ? fixed(2)(p.best.predicted_us / p.best.time) : "", number: true },
  ], view.shown.filter((p) => p.model), { chosen: (p) => p === problem });
}

const heightOfPair = (holder) => Math.min(480, Math.max(300, holder.clientWidth * 0.86));

function drawPredictions(holder, { chosen, first, others }) {
  const problem = view.problem;
  const all = chosen.concat(others.map(({ row }) => row));
  const domain = padded([].concat(...all.map((row) => [row.predicted_us, row.median_us])), 0.15);
  const at = (row, p) => ({ x: row.median_us, y: row.predicted_us, lines: () => [p.name].concat(rowLines(p, row)) });
  picture(holder, heightOfPair(holder), () => ({
    label: "Predicted against measured time",
    datasets: [
      line([{ x: domain[0], y: domain[0] }, { x: domain[1], y: domain[1] }], { color: "--soft", dashed: true }),
      marks(others.map(({ row, p }) => at(row, p)), { shape: "circle", color: "--faint", size: 1.75, opacity: 0.45 }),
      marks(chosen.filter((row) => !first.includes(row)).map((row) => at(row, problem)), { shape: "circle", color: "--best", size: 2.75, opacity: 0.7 }),
      marks(first.filter((row) => row.ok).map((row) => at(row, problem)), { shape: "circle", color: "--accent", size: 4, hollow: true }),
    ],
    scales: { x: logAxis(domain, 5, { title: "measured, µs (logarithmic)" }), y: logAxis(domain, 6, { title: "predicted, µs (logarithmic)" }) },
  }));
}

/// How good the configs are, in the order in which the model would try them.
function drawModelOrder(holder, { order, first }) {
  const problem = view.problem, best = problem.best.time;
  const numbered = order.map((row, i) => ({ row, i })).filter(({ row }) => row.ok);
  const over = numbered.map(({ row }) => row.time / best);
  const domain = [Math.min(0.98, least(over) / 1.01), most(over) * 1.06];
  const at = ({ row, i }) => ({ x: i + 1, y: row.time / best, lines: () => ["place " + (i + 1) + ", " + fixed(3)(row.time / best) + "× the best's time"].concat(rowLines(problem, row)) });
  picture(holder, heightOfPair(holder), () => ({
    label: "Time over the best in the order of the cost model",
    datasets: [
      marks(numbered.filter(({ row }) => !first.includes(row)).map(at), { shape: "circle", color: "--best", size: 2.75, opacity: 0.8 }),
      marks(numbered.filter(({ row }) => first.includes(row)).map(at), { shape: "circle", color: "--accent", size: 4, hollow: true }),
    ],
    scales: {
      x: axis("linear", [0, order.length + 1], { title: "place in the model's order", grid: false, at: placeTicks(order.length, 6), format: whole }),
      y: logAxis(domain, 7, { title: "time over the best (logarithmic)" }),
    },
    under: (context, { scales: { y }, chartArea: area }) => {
      const top = y.getPixelForValue(Math.min(data.near_best, domain[1]));
      context.save();
      context.fillStyle = faded("--best", 0.12);
      context.fillRect(area.left, top, area.right - area.left, area.bottom - top);
      context.restore();
    },
  }));
}
