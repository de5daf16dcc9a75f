"use strict";
// "One search": every row of a problem as it was tried, time against each field of the config, tables of configs.

const kTimed = { shape: "circle", color: "--best", opacity: 0.75 };
const kEstimated = { shape: "circle", color: "--default", hollow: true };
const kFinalist = { shape: "circle", color: "--accent", hollow: true };
const kChosen = { shape: "circle", color: "--accent" };

function drawFacts() {
  const problem = view.problem;
  const node = clear(byId("search-facts"));
  const fact = (name, value) => {
    const made = node.appendChild(element("span", "", name + " "));
    made.appendChild(element("b", "", value));
  };
  fact("problem", problem.problem);
  fact("rows", whole(problem.rows));
  Object.keys(problem.statuses).forEach((status) => fact(words(status), whole(problem.statuses[status])));
  if (problem.unreadable) fact("of a newer version, not shown", whole(problem.unreadable));
  if (problem.best) {
    const unit = problem.best.estimate ? " µs by the cost model" : " µs";
    fact("best", problem.best.config + ", " + number(problem.best.time) + unit);
    const other = comparableDefault(problem);
    if (other) fact("default", other.config + ", " + number(other.time) + unit + (other.race && other.race === problem.best.race ? ", in the same race" : ""));
    else if (problem.default) fact("default", problem.default.config + ", " + (problem.default.ok ? how(problem.default) : words(problem.default.status)));
    else if (problem.default_config) fact("default", problem.default_config + ", not tried");
  } else {
    fact("best", "none: no config was right and timed");
  }
  fact("work", number(problem.flops / 1e12) + " TFLOP (" + workWords([problem.pass]) + "), " + number(problem.bytes / 1e6) + " MB");
  const included = problem.trials !== null;
  byId("search-pictures").hidden = !included;
  if (!included) {
    node.appendChild(element("p", "note", "The single rows of this problem are not on this page: make it with --problem \"" + problem.problem + "\", or with a larger --rows."));
  }
}

function drawProgress() {
  const problem = view.problem, rows = problem.trials;
  const holder = byId("progress-plot");
  const timed = rows.filter((row) => row.ok);
  const onlyEstimates = timed.every((row) => row.estimate);
  const counts = (row) => row.ok && (onlyEstimates || !row.estimate);
  const statuses = failuresOf(rows);
  const standard = problem.default && problem.default.ok && (onlyEstimates || !problem.default.estimate) ? problem.default : null;
  byId("progress-note").textContent = problem.name + ". Every stored row in the order of trial" +
    (onlyEstimates ? "; times are the cost model's, nothing was timed." : statuses.length ? ", failures below by what became of them." : ".");
  legend("progress-legend", [
    ...(onlyEstimates ? [] : [Object.assign({ title: "timed" }, kTimed)]),
    ...(timed.some((row) => row.estimate) ? [Object.assign({ title: "cost model's estimate" }, kEstimated)] : []),
    ...(rows.some((row) => row.race) ? [Object.assign({ title: "finalist of a race, timed alternately" }, kFinalist), Object.assign({ title: "winner of a race" }, kChosen)] : []),
    ...(rows.some(counts) ? [{ line: true, color: "--best", title: "best so far" }] : []),
    ...(standard ? [{ line: true, dashed: true, color: "--default", title: "default config" }] : []),
  ]);
  const narrow = isNarrow(holder.clientWidth);
  const lanes = statuses.length * 18;
  const left = statuses.length ? widestOf(statuses.map(words), 11) + 14 : undefined;
  picture(holder, (narrow ? 290 : 360) + lanes, () => {
    const size = rows.length > 400 ? 2 : rows.length > 120 ? 2.75 : 3.5;
    const at = (some) => some.map(({ row, i }) => ({ x: i + 1, y: row.time, lines: () => ["trial " + whole(i + 1)].concat(rowLines(problem, row)) }));
    const numbered = rows.map((row, i) => ({ row, i }));
    const fine = numbered.filter(({ row }) => row.ok);
    const steps = [];
    let best = Infinity;
    numbered.filter(({ row }) => counts(row)).forEach(({ row, i }) => {
      if (row.time < best) steps.push({ x: i + 1, y: (best = row.time) });
    });
    if (steps.length) steps.push({ x: rows.length + 0.5, y: best });
    const domain = timed.length ? padded(timed.map((row) => row.time).concat(standard ? [standard.time] : []), 0.05) : [1, 10];
    const scales = {
      x: axis("linear", [0, rows.length + 1], { title: "trial", grid: false, at: placeTicks(rows.length, narrow ? 4 : 10), format: whole }),
    };
    if (statuses.length) {
      scales.lanes = axis("linear", [-0.6, statuses.length - 0.4], {
        side: "left", stack: "left", share: lanes, reverse: true, at: statuses.map((status, i) => i), format: (value) => words(statuses[value]), width: left,
      });
    }
    scales.y = logAxis(domain, 7, { title: onlyEstimates ? "predicted time, µs" : "time, µs (logarithmic)", side: "left", stack: "left", share: narrow ? 230 : 300, width: left && Math.max(left, 64) });
    if (scales.lanes && left < 64) scales.lanes.afterFit = (scale) => (scale.width = 64);
    return {
      label: "Time of each trial and the best so far",
      datasets: [
        ...(standard ? [line([{ x: 0, y: standard.time }, { x: rows.length + 1, y: standard.time }], { color: "--default", dashed: true })] : []),
        line(steps, { color: "--best", width: 2, stepped: true }),
        marks(at(fine.filter(({ row }) => !row.race && !row.estimate)), Object.assign({ size }, kTimed)),
        marks(at(fine.filter(({ row }) => !row.race && row.estimate)), Object.assign({ size }, kEstimated)),
        marks(at(fine.filter(({ row }) => row.race && row.place !== 1)), Object.assign({ size: size * 1.3 }, kFinalist)),
        marks(at(fine.filter(({ row }) => row.race && row.place === 1)), Object.assign({ size: size * 1.3 }, kChosen)),
        ...statuses.map((status, place) => Object.assign(marks(
          numbered.filter(({ row }) => row.status === status).map(({ row, i }) => ({ x: i + 1, y: place, lines: () => ["trial " + whole(i + 1)].concat(rowLines(problem, row)) })),
          Object.assign({ size: 4 }, failureMark(status))), { yAxisID: "lanes" })),
      ],
      scales,
    };
  });
}

/// One picture of each field that has several values: a point for each config, by its newest row of the highest rigor.
function drawFields() {
  const problem = view.problem;
  const node = byId("fields-plot");
  empty(node);
  const rows = standing(problem.trials);
  const timed = rows.filter((row) => row.ok);
  const statuses = failuresOf(rows);
  legend("fields-legend", [
    ...(timed.some((row) => !row.estimate) ? [Object.assign({ title: "timed" }, kTimed)] : []),
    ...(timed.some((row) => row.estimate) ? [Object.assign({ title: "cost model's estimate" }, kEstimated)] : []),
    Object.assign({ title: "the best config" }, kChosen),
    ...statuses.map((status) => Object.assign({ title: words(status) }, failureMark(status))),
  ]);
  const domain = timed.length ? padded(timed.map((row) => row.time), 0.05) : [1, 10];
  const same = [];
  let drawn = 0;
  data.fields.forEach((field, at) => {
    const values = inOrder(distinct(rows.map((row) => row.fields[at])));
    if (values.length >= 2) {
      ++drawn;
      drawField(node.appendChild(element("div", "panel")), { problem, rows, statuses, domain, field, at, values });
    } else if (values.length) {
      same.push(field.title + ": " + values[0]);
    }
  });
  node.dataset.fields = drawn;
  if (same.length) node.appendChild(element("p", "note", "The same in all of them: " + same.join("; ") + "."));
  if (!drawn && !same.length) node.appendChild(element("p", "note", "No row of this problem can be shown."));
}

function drawField(panel, { problem, rows, statuses, domain, field, at, values }) {
  panel.appendChild(element("div", "panel-title", field.title));
  const place = new Map(values.map((value, i) => [value, i]));
  const lanes = statuses.length * 13;
  picture(panel.appendChild(element("div")), 240 + lanes, (width) => {
    const room = Math.max(4, Math.floor((width - 70) / values.length / 6));
    const labels = values.map((value) => onLines(value, room));
    // Numbers that would touch leave out every second one.
    const stride = Math.ceil(most(labels.map((lines) => most(lines.map((words) => words.length)))) * 6.4 * values.length / Math.max(60, width - 70) / 1.4);
    const points = (some, y) => some.map(({ row, i }) => ({ x: place.get(row.fields[at]) + jitter(i) * 0.62, y: y(row), lines: () => rowLines(problem, row) }));
    const numbered = rows.map((row, i) => ({ row, i }));
    const chosen = ({ row }) => problem.best && row.config === problem.best.config;
    const fine = numbered.filter(({ row }) => row.ok);
    const time = (row) => row.time;
    const scales = {
      x: axis("linear", [-0.5, values.length - 0.5], {
        grid: false, at: values.map((value, i) => i), size: 10, format: (value) => (value % stride ? "" : labels[value]),
      }),
    };
    if (lanes) scales.lanes = axis("linear", [-0.6, statuses.length - 0.4], { side: "left", stack: "left", share: lanes, reverse: true, at: [], width: 46 });
    scales.y = logAxis(domain, 5, { side: "left", stack: "left", share: 190, width: 46, size: 10 });
    return {
      label: "Time against " + field.title,
      datasets: [
        marks(points(fine.filter((mark) => !chosen(mark) && !mark.row.estimate), time), Object.assign({}, kTimed, { size: 2.25, opacity: 0.6 })),
        marks(points(fine.filter((mark) => !chosen(mark) && mark.row.estimate), time), Object.assign({ size: 2.25 }, kEstimated)),
        marks(points(fine.filter(chosen), time), Object.assign({ size: 4.5 }, kChosen)),
        ...statuses.map((status, lane) => Object.assign(marks(points(numbered.filter(({ row }) => row.status === status), () => lane),
          Object.assign({ size: 3 }, failureMark(status))), { yAxisID: "lanes" })),
      ],
      scales,
      over: (context, { scales: { x, y } }) => {
        values.forEach((value, i) => {
          const times = fine.filter(({ row }) => row.fields[at] === value).map(({ row }) => row.time);
          if (!times.length) return;
          const top = y.getPixelForValue(least(times));
          strokeLine(context, x.getPixelForValue(i - 0.42), top, x.getPixelForValue(i + 0.42), top, { color: colorOf("--ink"), width: 2 });
        });
      },
    };
  });
}

function drawConfigs() {
  const problem = view.problem, best = problem.best;
  const rows = standing(problem.trials);
  const ranked = rows.filter((row) => row.ok).sort(byRank);
  const places = new Map(ranked.map((row, i) => [row, i + 1]));
  table(byId("configs-table"), [
    { title: "", value: (row) => String(places.get(row)), number: true },
    { title: "config", value: (row) => row.config, className: "mono nowrap" },
    { title: "µs", value: (row) => (row.estimate ? "" : number(row.median_us)), number: true },
    { title: "p20 – p80", value: spread, number: true },
    { title: "µs, spread 8", value: (row) => (row.wide_median_us > 0 ? number(row.wide_median_us) : ""), number: true },
    { title: "to best", value: (row) => (best && row.estimate === best.estimate ? signedPercent(row.time / best.time - 1) : ""), number: true },
    { title: "TFLOP/s", value: (row) => (row.estimate ? "" : number(problem.rate(row.time))), number: true },
    { title: "of roofline", value: (row) => reachedBy(row) !== null && percent(reachedBy(row)), number: true },
    { title: "model µs", value: (row) => row.predicted_us > 0 && number(row.predicted_us), number: true },
    { title: "registers", value: (row) => row.registers || "", number: true },
    { title: "spilled B", value: (row) => (row.registers ? String(row.spill_bytes) : ""), number: true },
    { title: "shared B", value: (row) => row.shared_bytes ? whole(row.shared_bytes) : "", number: true },
    { title: "error of O", value: (row) => (typeof row.error_o === "number" ? row.error_o.toExponential(1) : row.error_o), number: true },
    { title: "MHz", value: (row) => row.sm_clock_mhz || "", number: true },
    { title: "samples", value: (row) => row.samples || "", number: true },
    { title: "compile ms", value: (row) => row.compile_ms > 0 && whole(row.compile_ms), number: true },
    { title: "how", value: how, className: "nowrap" },
    { title: "when, UTC", value: (row) => day(row.created_at), className: "nowrap" },
  ], ranked, { first: 15, chosen: (row) => best && row.config === best.config });

  const failed = failureGroups(rows);
  byId("failures-part").hidden = failed.length === 0;
  table(byId("failures-table"), [
    { title: "configs", value: (group) => whole(group.configs.length), number: true },
    { title: "status", value: (group) => words(group.status), className: "nowrap" },
    { title: "reason", value: (group) => folded(group.reason + (group.several ? " (or other numbers)" : ""), 240), className: "text" },
    { title: "which", value: (group) => folded(group.configs.join(", "), 60), className: "mono text" },
  ], failed, { first: 25 });
}
