"use strict";
(function () {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);

  // ---- the data, as it is worked with -------------------------------------------------------------------------------

  const asRow = (values) => {
    const row = {};
    data.columns.forEach((column, i) => (row[column] = values[i]));
    row.provenanceOf = data.provenance[row.provenance];
    row.estimate = row.rigor === "estimate";
    // What rows are ranked by: the median, for an estimate the prediction.
    row.time = row.estimate ? row.predicted_us : row.median_us;
    row.ok = row.status === "ok" && row.time > 0;
    return row;
  };
  const problems = data.problems.map((given, index) => {
    const problem = Object.assign({}, given, { index });
    problem.best = given.best && asRow(given.best);
    problem.default = given.default && asRow(given.default);
    problem.trials = given.trials && given.trials.map(asRow);
    problem.estimatesOnly = Object.keys(given.rigors).every((rigor) => rigor === "estimate");
    problem.intensity = given.flops / given.bytes;
    problem.rate = (microseconds) => given.flops / microseconds / 1e6;
    return problem;
  });
  const peerTitles = Array.from(new Set([].concat(...problems.map((p) => p.peers.map((peer) => peer.title))))).sort();
  const rigors = ["estimate", "measure", "patient", "exhaustive"];

  let device = problems[data.selected].device;
  let problem = problems[data.selected];
  const ofDevice = () => problems.filter((p) => p.device === device);

  /// The default only where it is a time of the same kind as the best.
  const comparableDefault = (p) =>
    p.best && p.default && p.default.ok && p.default.estimate === p.best.estimate ? p.default : null;

  /// Each config by the newest row of its highest rigor, in the order of their first rows.
  function standing(rows) {
    const found = new Map();
    rows.forEach((row) => {
      const known = found.get(row.config);
      if (!known || rigors.indexOf(row.rigor) >= rigors.indexOf(known.rigor)) found.set(row.config, row);
    });
    return Array.from(found.values());
  }
  const text = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  const byRank = (a, b) =>
    rigors.indexOf(b.rigor) - rigors.indexOf(a.rigor) || text(b.race, a.race) || a.place - b.place || a.time - b.time ||
    text(a.config, b.config);

  // ---- words and numbers --------------------------------------------------------------------------------------------

  const fixed = (digits) => d3.format(",." + digits + "f");
  const number = (value) =>
    typeof value !== "number" ? String(value)
    : value === 0 ? "0"
    : Math.abs(value) >= 1000 ? fixed(0)(value)
    : Math.abs(value) >= 100 ? fixed(1)(value)
    : Math.abs(value) >= 1 ? fixed(2)(value)
    : value.toPrecision(3);
  const tick = (value) => (value >= 1000 ? fixed(0)(value) : String(+value.toPrecision(4)));
  const ratio = (value) => fixed(2)(value) + "×";
  const percent = (value) => fixed(value < 0.1 ? 1 : 0)(value * 100) + "\u00a0%";
  const spread = (row) => (row.estimate || !(row.median_us > 0) ? "" : number(row.p20_us) + " – " + number(row.p80_us));
  const words = (name) => name.replace(/_/g, " ");
  const day = (stamp) => stamp.slice(0, 16).replace("T", " ");
  const plural = (count, noun) => fixed(0)(count) + " " + noun + (count === 1 ? "" : "s");
  const geometricMean = (values) => Math.exp(d3.mean(values.map(Math.log)));
  const how = (row) =>
    row.estimate ? "cost model's estimate"
    : row.rigor + (row.race ? ", raced: " + (row.place === 1 ? "winner" : "place " + row.place) : "");

  // ---- elements -----------------------------------------------------------------------------------------------------

  function element(tag, className, content) {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (content !== undefined && content !== null) made.textContent = content;
    return made;
  }
  function clear(node) {
    while (node.firstChild) node.removeChild(node.firstChild);
    return node;
  }

  /// columns: {title, value(row) -> text or node, number, className}; one without any value is left out.
  function table(node, columns, rows, options) {
    const settings = Object.assign({ first: Infinity, chosen: () => false }, options);
    clear(node).classList.remove("tall");
    const old = node.nextElementSibling;
    if (old && old.classList.contains("more")) old.remove();
    if (!rows.length) return;
    const empty = (value) => value === undefined || value === null || value === "" || value === false;
    const shown = columns.filter((column) => rows.some((row) => !empty(column.value(row))));
    const made = element("table");
    const head = made.appendChild(element("thead")).appendChild(element("tr"));
    shown.forEach((column) => head.appendChild(element("th", column.number ? "number" : column.className, column.title)));
    const body = made.appendChild(element("tbody"));
    const add = (row) => {
      const line = body.appendChild(element("tr", settings.chosen(row) ? "chosen" : ""));
      shown.forEach((column) => {
        const value = column.value(row);
        const cell = element("td", column.number ? "number" : column.className || "");
        if (value instanceof Node) cell.appendChild(value);
        else cell.textContent = empty(value) ? "–" : value;
        line.appendChild(cell);
      });
    };
    rows.slice(0, settings.first).forEach(add);
    node.appendChild(made);
    if (rows.length > settings.first) {
      const more = element("p", "more");
      const button = more.appendChild(element("button", "", "show all " + fixed(0)(rows.length)));
      button.type = "button";
      button.addEventListener("click", () => {
        rows.slice(settings.first).forEach(add);
        node.classList.add("tall");
        more.remove();
      });
      node.parentNode.insertBefore(more, node.nextSibling);
    }
  }

  const tooltip = byId("tooltip");
  function showTooltip(event, lines) {
    clear(tooltip);
    lines.filter((line) => line).forEach((line, i) => tooltip.appendChild(element("div", i === 0 ? "head" : "", line)));
    tooltip.hidden = false;
    const box = tooltip.getBoundingClientRect();
    const space = document.documentElement.clientWidth;
    const left = Math.min(Math.max(event.clientX + 14, 8), space - box.width - 8);
    const above = event.clientY + 18 + box.height > window.innerHeight;
    tooltip.style.left = left + window.scrollX + "px";
    tooltip.style.top = (above ? event.clientY - box.height - 12 : event.clientY + 18) + window.scrollY + "px";
  }
  /// Shows lines(datum) beside the pointer while it is over a mark, or after a tap.
  function explain(selection, lines) {
    selection.classed("mark", true).each(function (datum) {
      this.lines = () => lines(datum);
    });
  }
  // One listener for all marks: there may be tens of thousands.
  ["mouseover", "mousemove", "click"].forEach((kind) =>
    document.addEventListener(kind, (event) => {
      if (event.target.lines) showTooltip(event, event.target.lines());
      else tooltip.hidden = true;
    }));

  const rowLines = (p) => (row) => [
    row.config,
    row.status !== "ok" ? words(row.status) + (row.reason ? ": " + clipped(row.reason, 300) : "")
    : row.estimate ? "correct on the emulator, not timed"
    : number(row.median_us) + " µs (p20 to p80: " + spread(row) + "), " + number(p.rate(row.median_us)) + " TFLOP/s",
    row.predicted_us > 0 ? "cost model: " + number(row.predicted_us) + " µs" : "",
    how(row) + (row.samples ? ", " + plural(row.samples, "sample") : "") + (row.sm_clock_mhz ? ", " + row.sm_clock_mhz + " MHz" : ""),
    row.registers ? row.registers + " registers, " + row.spill_bytes + " bytes spilled, " + fixed(0)(row.shared_bytes) + " bytes shared" : "",
    day(row.created_at) + " UTC",
  ];
  const clipped = (long, length) => (long.length > length ? long.slice(0, length) + " …" : long);

  // ---- marks --------------------------------------------------------------------------------------------------------

  const failureMarks = {
    infeasible: ["square", 4], compile_failed: ["triangle-up", 3], compile_timed_out: ["triangle-down", 3], spilled: ["square", 2],
    serialized: ["diamond", 2], launch_failed: ["diamond", 0], crashed: ["cross", 0], wrong_result: ["x", 1],
    timed_out: ["triangle-down", 1], out_of_memory: ["square", 0],
  };
  const failureOrder = Object.keys(failureMarks);
  const failureMark = (status) => failureMarks[status] || ["circle", 4];
  const peerShapes = ["diamond", "triangle-up", "square", "triangle-down"];
  const peerMark = (title) => {
    const place = peerTitles.indexOf(title) % peerShapes.length;
    return { shape: peerShapes[place], color: "var(--peer-" + place + ")" };
  };

  function shapePath(shape, size) {
    return d3.svg.symbol().type(shape === "x" ? "cross" : shape).size(size)();
  }
  const turn = (shape) => (shape === "x" ? " rotate(45)" : "");

  /// A filled mark, or one that is only outlined; its place and its fill are style, so that they follow the theme.
  function draw(selection, shape, size, color, hollow) {
    return selection
      .append("path")
      .attr("d", shapePath(shape, size))
      .style(hollow ? { fill: "var(--paper)", stroke: color, "stroke-width": "2px" } : { fill: color });
  }

  function legend(id, entries) {
    const node = clear(byId(id));
    entries.forEach((entry) => {
      const item = node.appendChild(element("span"));
      const svg = d3.select(item).append("svg").attr({ width: entry.line ? 26 : 14, height: 14 });
      if (entry.line) {
        svg.append("line").attr({ x1: 0, x2: 26, y1: 7, y2: 7 }).attr("class", entry.dashed ? "dashed" : "")
          .style({ stroke: entry.color, "stroke-width": "2px" });
      } else {
        draw(svg.append("g").attr("transform", "translate(7,7)" + turn(entry.shape)), entry.shape, 64, entry.color, entry.hollow)
          .style("opacity", entry.opacity || 1);
      }
      item.appendChild(document.createTextNode(entry.title));
    });
  }

  // ---- frames, axes -------------------------------------------------------------------------------------------------

  function frame(node, settings) {
    clear(node);
    const width = settings.width || Math.max(280, node.clientWidth), m = settings.margin;
    const svg = d3.select(node).append("svg")
      .attr({ width, height: settings.height, viewBox: "0 0 " + width + " " + settings.height, role: "img", "aria-label": settings.label });
    return {
      svg, width: width - m.left - m.right, height: settings.height - m.top - m.bottom, margin: m,
      g: svg.append("g").attr("transform", "translate(" + m.left + "," + m.top + ")"),
    };
  }

  /// Round values inside [low, high], about `count` of them, evenly readable on a logarithmic axis.
  function logTicks(low, high, count) {
    if (high / low < 4) return d3.scale.linear().domain([low, high]).ticks(count);
    const decades = Math.log(high / low) / Math.LN10;
    const steps = decades * 9 <= count * 1.2 ? [1, 2, 3, 4, 5, 6, 7, 8, 9] : decades * 3 <= count * 1.3 ? [1, 2, 5] : decades <= count ? [1] : null;
    const found = [];
    const stride = steps ? 1 : Math.ceil(decades / count);
    for (let power = Math.floor(Math.log(low) / Math.LN10); Math.pow(10, power) <= high; power += stride) {
      (steps || [1]).forEach((step) => {
        const value = step * Math.pow(10, power);
        if (value >= low * 0.9999 && value <= high * 1.0001) found.push(value);
      });
    }
    return found;
  }

  function xAxis(f, scale, ticks, settings) {
    const s = Object.assign({ format: tick, grid: true }, settings);
    const axis = d3.svg.axis().scale(scale).orient("bottom").tickValues(ticks).tickFormat(s.format).tickSize(4, 0);
    if (s.grid) {
      f.g.append("g").attr("class", "grid").attr("transform", "translate(0," + f.height + ")")
        .call(d3.svg.axis().scale(scale).orient("bottom").tickValues(ticks).tickFormat("").tickSize(-f.height, 0));
    }
    f.g.append("g").attr("class", "axis").attr("transform", "translate(0," + (f.height + (s.below || 0)) + ")").call(axis);
    if (s.title) {
      f.g.append("text").attr({ x: f.width / 2, y: f.height + (s.below || 0) + 34, "text-anchor": "middle" }).text(s.title);
    }
  }
  function yAxis(f, scale, ticks, settings) {
    const s = Object.assign({ format: tick }, settings);
    f.g.append("g").attr("class", "grid").call(d3.svg.axis().scale(scale).orient("left").tickValues(ticks).tickFormat("").tickSize(-f.width, 0));
    f.g.append("g").attr("class", "axis").call(d3.svg.axis().scale(scale).orient("left").tickValues(ticks).tickFormat(s.format).tickSize(4, 0));
    if (s.title) f.g.append("text").attr({ x: -f.margin.left + 2, y: -10 }).text(s.title);
  }

  /// "heads-reversed" on two lines.
  function breakLabels(labels) {
    labels.style("font-size", "11px").each(function (value) {
      const parts = String(value).replace(/-/g, "- ").split(" ");
      const label = d3.select(this).text(null);
      parts.forEach((part, i) => label.append("tspan").attr({ x: 0, dy: i ? "1.1em" : "0.71em" }).text(part));
    });
  }

  const padded = (values, share) => [d3.min(values) / (1 + share), d3.max(values) * (1 + share)];
  // The same mark lies at the same place whenever it is drawn.
  const jitter = (i) => (((i * 0.6180339887) % 1) - 0.5);

  // ---- best of each shape -------------------------------------------------------------------------------------------

  /// How a peer stands to Attune: in its own run where the file has that, else to the database's row.
  function toPeer(p, peer) {
    if (!peer || peer.error || !peer.within) return null;
    if (peer.attune_us > 0) return { value: peer.median_us / peer.attune_us, same: true };
    return p.best && !p.best.estimate ? { value: peer.median_us / p.best.time, same: false } : null;
  }
  const peerOf = (p, title) => p.peers.find((peer) => peer.title === title);

  function drawTiles() {
    const node = clear(byId("tiles"));
    const tile = (value, label) => {
      const made = node.appendChild(element("div", "tile"));
      made.appendChild(element("div", "value", value));
      made.appendChild(element("div", "label", label));
    };
    const shown = ofDevice().filter((p) => p.best);
    const measured = shown.filter((p) => !p.best.estimate);
    tile(fixed(0)(ofDevice().length), (ofDevice().length === 1 ? "shape" : "shapes") + " with results, " + fixed(0)(measured.length) + " of them measured");
    const overDefault = (measured.length ? measured : shown).filter(comparableDefault).map((p) => p.default.time / p.best.time);
    if (overDefault.length) {
      tile(ratio(geometricMean(overDefault)), "the default's speed, geometric mean of " + plural(overDefault.length, "shape") +
        (measured.length ? "" : ", by the cost model"));
    }
    const reached = measured.filter((p) => p.ceilings).map((p) => p.ceilings.bound_us / p.best.time);
    if (reached.length) tile(percent(d3.median(reached)), "of the roofline, median; best " + percent(d3.max(reached)));
    peerTitles.forEach((title) => {
      const ratios = ofDevice().map((p) => toPeer(p, peerOf(p, title))).filter((found) => found);
      if (ratios.length) {
        tile(ratio(geometricMean(ratios.map((found) => found.value))), "the speed of " + title + ", geometric mean of " + plural(ratios.length, "shape") +
          (ratios.every((found) => found.same) ? ", each in the same run" : ""));
      }
    });
  }

  function drawShapes() {
    const shown = ofDevice().filter((p) => p.best);
    const node = byId("shapes-plot");
    const estimates = shown.filter((p) => p.best.estimate).length;
    byId("shapes-note").textContent =
      "TFLOP/s of counted work: 4·D for each attended pair. The thin bar spans p20 to p80; right: speed over the default." +
      (estimates ? " Hollow: the cost model's estimate, not a measurement." : "");
    legend("shapes-legend", [
      ...(estimates < shown.length ? [{ shape: "circle", color: "var(--best)", title: "best config" }] : []),
      { shape: "circle", color: "var(--default)", hollow: true, title: "default config" },
      ...(estimates ? [{ shape: "circle", color: "var(--best)", hollow: true, title: "best by the cost model" }] : []),
      ...peerTitles.map((title) => Object.assign({ title }, peerMark(title))),
    ]);
    if (!shown.length) {
      clear(node).appendChild(element("p", "note", "No config of this device is both right and timed: nothing can be chosen."));
      return;
    }
    const narrow = node.clientWidth < 640;
    const line = narrow ? 44 : 27;
    const f = frame(node, {
      height: shown.length * line + 66,
      margin: { left: narrow ? 8 : 250, right: narrow ? 46 : 62, top: 22, bottom: 44 },
      label: "Rate of the best config of each shape beside the default and other libraries",
    });
    const rates = [];
    shown.forEach((p) => {
      rates.push(p.rate(p.best.time));
      if (comparableDefault(p)) rates.push(p.rate(p.default.time));
      p.peers.forEach((peer) => peer.median_us > 0 && rates.push(p.rate(peer.median_us)));
    });
    const x = d3.scale.linear().domain([0, d3.max(rates) * 1.04]).range([0, f.width]);
    xAxis(f, x, x.ticks(narrow ? 5 : 8), { title: "TFLOP/s" });
    f.g.append("text").attr({ x: f.width + f.margin.right, y: -9, "text-anchor": "end" }).text("to default");

    shown.forEach((p, i) => {
      const y = i * line + (narrow ? 32 : line / 2);
      const g = f.g.append("g").attr("transform", "translate(0," + y + ")");
      g.append("line").attr({ x1: 0, x2: f.width, y1: 0, y2: 0 }).style({ stroke: "var(--grid)", "stroke-width": "1px" });
      g.append("text").attr(narrow ? { x: 0, y: -13 } : { x: -12, y: 4, "text-anchor": "end" }).attr("class", "strong").text(p.name);
      const other = comparableDefault(p);
      const at = x(p.rate(p.best.time));
      if (other) {
        g.append("line").attr({ x1: x(p.rate(other.time)), x2: at, y1: 0, y2: 0 }).style({ stroke: "var(--best)", "stroke-width": "3px", opacity: 0.45 });
        g.append("text").attr({ x: f.width + f.margin.right, y: 4, "text-anchor": "end" }).attr("class", "strong").text(ratio(other.time / p.best.time));
      }
      p.peers.filter((peer) => peer.median_us > 0).forEach((peer) => {
        const mark = peerMark(peer.title);
        explain(draw(g.append("g").attr("transform", "translate(" + x(p.rate(peer.median_us)) + ",0)"), mark.shape, 60, mark.color, !peer.within), () => [
          peer.title + (peer.within ? "" : ": WRONG OUTPUT"), p.name,
          number(peer.median_us) + " µs (p20 to p80: " + number(peer.p20_us) + " – " + number(peer.p80_us) + "), " + number(p.rate(peer.median_us)) + " TFLOP/s",
          peer.attune_us > 0 ? "Attune in the same run: " + number(peer.attune_us) + " µs with " + peer.attune_config : "",
        ]);
      });
      if (other) {
        const mark = draw(g.append("g").attr("transform", "translate(" + x(p.rate(other.time)) + ",0)"), "circle", 60, "var(--default)", true);
        explain(mark.datum(other), (row) => ["default: " + row.config].concat(rowLines(p)(row).slice(1)));
      }
      if (!p.best.estimate) {
        g.append("line").attr({ x1: x(p.rate(p.best.p80_us)), x2: x(p.rate(p.best.p20_us)), y1: 0, y2: 0 }).style({ stroke: "var(--ink)", "stroke-width": "1.5px" });
      }
      const mark = draw(g.append("g").attr("transform", "translate(" + at + ",0)"), "circle", 90, "var(--best)", p.best.estimate);
      explain(mark.datum(p.best), (row) => [p.name].concat(rowLines(p)(row)));
    });
  }

  function drawShapesTable() {
    const link = (p) => {
      const made = element("a", "", p.name);
      made.href = "#search";
      made.style.color = "inherit";
      made.addEventListener("click", () => choose(p));
      return made;
    };
    table(byId("shapes-table"), [
      { title: "shape", value: link, className: "nowrap" },
      { title: "best config", value: (p) => p.best && p.best.config, className: "mono nowrap" },
      { title: "µs", value: (p) => p.best && number(p.best.time), number: true },
      { title: "p20 – p80", value: (p) => p.best && spread(p.best), number: true },
      { title: "TFLOP/s", value: (p) => p.best && number(p.rate(p.best.time)), number: true },
      { title: "to default", value: (p) => comparableDefault(p) && ratio(p.default.time / p.best.time), number: true },
      ...peerTitles.map((title) => ({
        title: "to " + title,
        value: (p) => {
          const found = toPeer(p, peerOf(p, title));
          return found && ratio(found.value) + (found.same ? "" : " *");
        },
        number: true,
      })),
      { title: "of roofline", value: (p) => p.best && !p.best.estimate && p.ceilings ? percent(p.ceilings.bound_us / p.best.time) : "", number: true },
      { title: "MHz", value: (p) => p.best && p.best.sm_clock_mhz ? p.best.sm_clock_mhz : "", number: true },
      { title: "how", value: (p) => (p.best ? how(p.best) : "no config was right and timed"), className: "nowrap" },
      { title: "rows", value: (p) => fixed(0)(p.rows), number: true },
    ], ofDevice());
    const rows = [].concat(...ofDevice().map((p) => p.peers.map((peer) => ({ p, peer }))));
    byId("peers-part").hidden = rows.length === 0;
    table(byId("peers-table"), [
      { title: "shape", value: (r) => r.p.name, className: "nowrap" },
      { title: "library", value: (r) => r.peer.title + (r.peer.within ? "" : ": wrong output"), className: "nowrap" },
      { title: "µs", value: (r) => r.peer.median_us && number(r.peer.median_us), number: true },
      { title: "p20 – p80", value: (r) => r.peer.median_us && number(r.peer.p20_us) + " – " + number(r.peer.p80_us), number: true },
      { title: "TFLOP/s", value: (r) => r.peer.median_us && number(r.p.rate(r.peer.median_us)), number: true },
      { title: "Attune, same run: µs", value: (r) => r.peer.attune_us && number(r.peer.attune_us), number: true },
      { title: "ratio, same run", value: (r) => r.peer.attune_us && ratio(r.peer.median_us / r.peer.attune_us), number: true },
      { title: "ratio to the database's best", value: (r) => r.peer.median_us && r.p.best && !r.p.best.estimate && ratio(r.peer.median_us / r.p.best.time), number: true },
      { title: "Attune's config in that run, or why there is no time", value: (r) => r.peer.error || r.peer.attune_config, className: "nowrap" },
    ], rows, { first: 12 });
  }

  // ---- one search ---------------------------------------------------------------------------------------------------

  function drawFacts() {
    const node = clear(byId("search-facts"));
    const fact = (name, value) => {
      const made = node.appendChild(element("span", "", name + " "));
      made.appendChild(element("b", "", value));
    };
    fact("problem", problem.problem);
    fact("rows", fixed(0)(problem.rows));
    Object.keys(problem.statuses).forEach((status) => fact(words(status), fixed(0)(problem.statuses[status])));
    if (problem.unreadable) fact("of a newer version, not shown", fixed(0)(problem.unreadable));
    if (problem.best) {
      fact("best", problem.best.config + ", " + number(problem.best.time) + (problem.best.estimate ? " µs by the cost model" : " µs"));
      const other = comparableDefault(problem);
      if (other) fact("default", other.config + ", " + number(other.time) + (other.estimate ? " µs by the cost model" : " µs") + (other.race && other.race === problem.best.race ? ", in the same race" : ""));
      else if (problem.default) fact("default", problem.default.config + ", " + (problem.default.ok ? how(problem.default) : words(problem.default.status)));
      else if (problem.default_config) fact("default", problem.default_config + ", not tried");
    } else {
      fact("best", "none: no config was right and timed");
    }
    fact("work", number(problem.flops / 1e12) + " TFLOP, " + number(problem.bytes / 1e6) + " MB");
    const included = problem.trials !== null;
    byId("search-pictures").hidden = !included;
    if (!included) node.appendChild(element("p", "note", "The single rows of this problem are not on this page: make it with --problem \"" + problem.problem + "\", or with a larger --rows."));
  }

  const failuresOf = (rows) => {
    const present = new Set(rows.filter((row) => row.status !== "ok").map((row) => row.status));
    return failureOrder.filter((status) => present.has(status)).concat(Array.from(present).filter((status) => !failureMarks[status]).sort());
  };
  const failureLegend = (statuses) =>
    statuses.map((status) => ({ shape: failureMark(status)[0], color: "var(--fail-" + failureMark(status)[1] + ")", title: words(status) }));

  function drawProgress() {
    const rows = problem.trials;
    const node = byId("progress-plot");
    const timed = rows.filter((row) => row.ok);
    const onlyEstimates = timed.every((row) => row.estimate);
    const counts = timed.filter((row) => onlyEstimates || !row.estimate);
    const statuses = failuresOf(rows);
    const raced = rows.some((row) => row.race);
    byId("progress-note").textContent = "Every stored row in the order of trial" +
      (onlyEstimates ? "; times are the cost model's, nothing was timed." : ", failures below by what became of them.");
    legend("progress-legend", [
      ...(onlyEstimates ? [] : [{ shape: "circle", color: "var(--best)", title: "timed" }]),
      ...(timed.some((row) => row.estimate) ? [{ shape: "circle", color: "var(--default)", hollow: true, title: "cost model's estimate" }] : []),
      ...(raced ? [{ shape: "circle", color: "var(--accent)", hollow: true, title: "finalist of a race, timed in turns" }, { shape: "circle", color: "var(--accent)", title: "winner of a race" }] : []),
      ...(counts.length ? [{ line: true, color: "var(--best)", title: "best so far" }] : []),
      ...(problem.default && problem.default.ok ? [{ line: true, dashed: true, color: "var(--default)", title: "default config" }] : []),
    ]);
    const narrow = node.clientWidth < 640;
    const lane = 17, lanes = statuses.length * lane;
    const f = frame(node, {
      height: (narrow ? 250 : 320) + lanes + 82,
      margin: { left: narrow ? 92 : 126, right: 16, top: 28, bottom: 54 + lanes },
      label: "Time of each trial and the best so far",
    });
    const x = d3.scale.linear().domain([0, rows.length + 1]).range([0, f.width]);
    const xTicks = x.ticks(narrow ? 5 : 10).filter((value) => value >= 1 && Number.isInteger(value));
    xAxis(f, x, xTicks, { title: "trial", format: fixed(0), below: lanes + (lanes ? 8 : 0), grid: false });
    if (timed.length) {
      const shown = timed.map((row) => row.time).concat(problem.default && problem.default.ok ? [problem.default.time] : []);
      const domain = padded(shown, 0.05);
      const y = d3.scale.log().domain(domain).range([f.height, 0]);
      yAxis(f, y, logTicks(domain[0], domain[1], 7), { title: onlyEstimates ? "predicted time, µs" : "time, µs (logarithmic)" });
      if (problem.default && problem.default.ok && (onlyEstimates || !problem.default.estimate)) {
        const at = y(problem.default.time);
        f.g.append("line").attr({ x1: 0, x2: f.width, y1: at, y2: at, class: "dashed" }).style({ stroke: "var(--default)", "stroke-width": "1.5px" });
      }
      let best = Infinity;
      const steps = [];
      rows.forEach((row, i) => {
        if (row.ok && (onlyEstimates || !row.estimate) && row.time < best) steps.push([i + 1, (best = row.time)]);
      });
      if (steps.length) {
        steps.push([rows.length + 0.5, best]);
        f.g.append("path").attr("d", d3.svg.line().x((d) => x(d[0])).y((d) => y(d[1])).interpolate("step-after")(steps))
          .style({ fill: "none", stroke: "var(--best)", "stroke-width": "2px" });
      }
      const size = rows.length > 400 ? 18 : rows.length > 120 ? 30 : 46;
      const marks = rows.map((row, i) => ({ row, i })).filter((mark) => mark.row.ok);
      marks.sort((a, b) => (a.row.place === 1) - (b.row.place === 1) || a.i - b.i);  // winners on top
      marks.forEach(({ row, i }) => {
        const g = f.g.append("g").attr("transform", "translate(" + x(i + 1) + "," + y(row.time) + ")");
        const color = row.race ? "var(--accent)" : row.estimate ? "var(--default)" : "var(--best)";
        const mark = draw(g, "circle", row.race ? size * 1.7 : size, color, (row.race !== "" && row.place !== 1) || row.estimate).style("fill-opacity", 0.75);
        explain(mark.datum(row), rowLines(problem));
      });
    }
    statuses.forEach((status, at) => {
      const y = f.height + at * lane + 14;
      const [shape, color] = failureMark(status);
      f.g.append("line").attr({ x1: 0, x2: f.width, y1: y, y2: y }).style("stroke", "var(--grid)");
      f.g.append("text").attr({ x: -8, y: y + 4, "text-anchor": "end" }).style("font-size", narrow ? "9px" : "11px").text(words(status));
      rows.forEach((row, i) => {
        if (row.status !== status) return;
        const mark = draw(f.g.append("g").attr("transform", "translate(" + x(i + 1) + "," + y + ")" + turn(shape)), shape, 44, "var(--fail-" + color + ")");
        explain(mark.datum(row), rowLines(problem));
      });
    });
  }

  function drawFields() {
    const node = clear(byId("fields-plot"));
    const rows = standing(problem.trials);
    const timed = rows.filter((row) => row.ok);
    const statuses = failuresOf(rows);
    legend("fields-legend", [
      ...(timed.some((row) => !row.estimate) ? [{ shape: "circle", color: "var(--best)", title: "timed" }] : []),
      ...(timed.some((row) => row.estimate) ? [{ shape: "circle", color: "var(--default)", hollow: true, title: "cost model's estimate" }] : []),
      { shape: "circle", color: "var(--accent)", title: "the best config" },
      ...failureLegend(statuses),
    ]);
    const domain = timed.length ? padded(timed.map((row) => row.time), 0.05) : [1, 10];
    const lane = 13, lanes = statuses.length * lane;
    let drawn = 0;
    const same = [];
    data.fields.forEach((field, at) => {
      const values = Array.from(new Set(rows.map((row) => row.fields[at])));
      values.sort((a, b) => (typeof a === "number" && typeof b === "number" ? a - b : text(String(a), String(b))));
      if (values.length < 2) {
        if (values.length) same.push(field.title + ": " + values[0]);
        return;
      }
      ++drawn;
      const holder = node.appendChild(element("div"));
      const f = frame(holder, {
        height: 254 + lanes, margin: { left: 52, right: 8, top: 26, bottom: 46 + lanes }, label: "Time against " + field.title,
      });
      f.g.append("text").attr({ x: -44, y: -12 }).attr("class", "title").text(field.title);
      const x = d3.scale.ordinal().domain(values).rangeBands([0, f.width], 0.15);
      const y = d3.scale.log().domain(domain).range([f.height, 0]);
      yAxis(f, y, logTicks(domain[0], domain[1], 5), {});
      const axis = d3.svg.axis().scale(x).orient("bottom").tickSize(4, 0);
      const labels = f.g.append("g").attr("class", "axis").attr("transform", "translate(0," + (f.height + lanes + (lanes ? 6 : 0)) + ")").call(axis);
      const long = d3.max(values, (value) => String(value).length) * 6.8 > x.rangeBand() * 1.15;
      if (long) breakLabels(labels.selectAll("text"));
      const middle = (value) => x(value) + x.rangeBand() / 2;
      const place = (row, i) => middle(row.fields[at]) + jitter(i) * x.rangeBand() * 0.72;
      values.forEach((value) => {
        const fastest = d3.min(timed.filter((row) => row.fields[at] === value), (row) => row.time);
        if (fastest === undefined) return;
        f.g.append("line").attr({ x1: x(value), x2: x(value) + x.rangeBand(), y1: y(fastest), y2: y(fastest) }).style({ stroke: "var(--ink)", "stroke-width": "2px" });
      });
      rows.forEach((row, i) => {
        const failed = row.status !== "ok";
        if (!failed && !row.ok) return;
        const [shape, color] = failed ? failureMark(row.status) : ["circle"];
        const top = failed ? f.height + statuses.indexOf(row.status) * lane + 11 : y(row.time);
        const chosen = problem.best && row.config === problem.best.config;
        const g = f.g.append("g").attr("transform", "translate(" + place(row, i) + "," + top + ")" + turn(shape));
        const mark = failed ? draw(g, shape, 30, "var(--fail-" + color + ")")
          : draw(g, "circle", chosen ? 70 : 20, chosen ? "var(--accent)" : row.estimate ? "var(--default)" : "var(--best)", row.estimate && !chosen).style("fill-opacity", chosen ? 1 : 0.6);
        explain(mark.datum(row), rowLines(problem));
      });
    });
    if (same.length) node.appendChild(element("p", "note", "The same in all of them: " + same.join("; ") + "."));
    if (!drawn && !same.length) node.appendChild(element("p", "note", "No row of this problem can be shown."));
  }

  function drawConfigs() {
    const rows = standing(problem.trials);
    const ranked = rows.filter((row) => row.ok).sort(byRank);
    const best = problem.best;
    table(byId("configs-table"), [
      { title: "", value: (row) => String(ranked.indexOf(row) + 1), number: true },
      { title: "config", value: (row) => row.config, className: "mono nowrap" },
      { title: "µs", value: (row) => (row.estimate ? "" : number(row.median_us)), number: true },
      { title: "p20 – p80", value: spread, number: true },
      { title: "to best", value: (row) => (best && row.estimate === best.estimate ? d3.format("+.1f")((row.time / best.time - 1) * 100) + " %" : ""), number: true },
      { title: "TFLOP/s", value: (row) => (row.estimate ? "" : number(problem.rate(row.time))), number: true },
      { title: "model µs", value: (row) => row.predicted_us > 0 && number(row.predicted_us), number: true },
      { title: "registers", value: (row) => row.registers || "", number: true },
      { title: "spilled B", value: (row) => (row.registers ? String(row.spill_bytes) : ""), number: true },
      { title: "shared B", value: (row) => row.shared_bytes ? fixed(0)(row.shared_bytes) : "", number: true },
      { title: "error of O", value: (row) => (typeof row.error_o === "number" ? row.error_o.toExponential(1) : row.error_o), number: true },
      { title: "MHz", value: (row) => row.sm_clock_mhz || "", number: true },
      { title: "samples", value: (row) => row.samples || "", number: true },
      { title: "compile ms", value: (row) => row.compile_ms > 0 && fixed(0)(row.compile_ms), number: true },
      { title: "how", value: how, className: "nowrap" },
      { title: "when, UTC", value: (row) => day(row.created_at), className: "nowrap" },
    ], ranked, { first: 15, chosen: (row) => best && row.config === best.config });

    const groups = new Map();
    rows.filter((row) => row.status !== "ok").forEach((row) => {
      // Reasons that differ in their numbers alone are one.
      const key = row.status + "\n" + row.reason.replace(/[0-9][0-9.,e+-]*/g, "#");
      if (!groups.has(key)) groups.set(key, { status: row.status, reasons: new Set(), configs: [] });
      groups.get(key).reasons.add(row.reason);
      groups.get(key).configs.push(row.config);
    });
    const failed = Array.from(groups.values()).sort((a, b) => b.configs.length - a.configs.length || text(a.status, b.status));
    byId("failures-part").hidden = failed.length === 0;
    const folded = (long, shown) => {
      if (long.length <= shown) return long;
      const made = element("details");
      made.style.margin = "0";
      made.appendChild(element("summary", "", long.slice(0, shown) + " …"));
      made.appendChild(element("span", "", long));
      return made;
    };
    table(byId("failures-table"), [
      { title: "configs", value: (group) => fixed(0)(group.configs.length), number: true },
      { title: "status", value: (group) => words(group.status), className: "nowrap" },
      { title: "reason", value: (group) => {
        const [reason] = group.reasons;
        return folded(reason + (group.reasons.size > 1 ? " (or other numbers)" : ""), 240);
      }, className: "text" },
      { title: "which", value: (group) => folded(group.configs.join(", "), 60), className: "mono text" },
    ], failed, { first: 25 });
  }

  // ---- roofline -----------------------------------------------------------------------------------------------------

  function drawRoofline() {
    const facts = data.devices[device];
    const shown = ofDevice().filter((p) => p.best && p.ceilings);
    const node = byId("roofline-plot");
    const note = byId("roofline-note");
    if (!facts.known || !shown.length) {
      note.textContent = facts.known ? "There is no time to show." : "The ceilings of " + facts.name + " are not known to this version: no roofline.";
      clear(node);
      clear(byId("roofline-legend"));
      clear(byId("roofline-table"));
      return;
    }
    const exponentialCeiling = (headDim) => 4 * headDim * facts.exponentials_per_us / 1e6;
    const headDims = Array.from(new Set(shown.map((p) => p.head_dim))).sort((a, b) => a - b);
    const binding = headDims.filter((d) => exponentialCeiling(d) < facts.mma_tflops);
    const free = headDims.filter((d) => exponentialCeiling(d) >= facts.mma_tflops);
    note.textContent =
      "Ceilings of " + facts.name + " at its nominal " + fixed(0)(facts.clock_mhz) + " MHz: mma.sync products " + number(facts.mma_tflops) + " TFLOP/s, device memory " +
      number(facts.memory_gbps) + " GB/s, and exponentials, one for each 4·D FLOP" +
      (free.length ? "; these bind below D = " + fixed(0)(facts.mma_tflops * 1e6 / 4 / facts.exponentials_per_us) + "." : ".") +
      " Counted work over the fewest bytes; other instructions (wgmma) have a higher ceiling.";
    legend("roofline-legend", [
      ...(shown.some((p) => !p.best.estimate) ? [{ shape: "circle", color: "var(--best)", title: "best config" }] : []),
      ...(shown.some((p) => p.best.estimate) ? [{ shape: "circle", color: "var(--best)", hollow: true, title: "best by the cost model" }] : []),
      { shape: "circle", color: "var(--default)", hollow: true, title: "default config" },
      ...peerTitles.map((title) => Object.assign({ title }, peerMark(title))),
      { line: true, color: "var(--soft)", title: "ceilings: products, device memory" },
      ...(binding.length ? [{ line: true, dashed: true, color: "var(--accent)", title: "ceiling: exponentials" }] : []),
    ]);
    const narrow = node.clientWidth < 640;
    const f = frame(node, {
      height: narrow ? 340 : 440, margin: { left: 52, right: narrow ? 14 : 142, top: 28, bottom: 46 }, label: "Roofline of " + facts.name,
    });
    const rates = [];
    shown.forEach((p) => {
      rates.push(p.rate(p.best.time));
      if (comparableDefault(p)) rates.push(p.rate(p.default.time));
      p.peers.forEach((peer) => peer.median_us > 0 && rates.push(p.rate(peer.median_us)));
    });
    const ridge = facts.mma_tflops * 1e3 / facts.memory_gbps;
    const domainX = [Math.min(ridge / 3, d3.min(shown, (p) => p.intensity) / 1.6), Math.max(ridge * 3, d3.max(shown, (p) => p.intensity) * 1.6)];
    const domainY = [d3.min(rates) / 1.6, Math.max(facts.mma_tflops, d3.max(rates)) * 1.35];
    const x = d3.scale.log().domain(domainX).range([0, f.width]).clamp(true);
    const y = d3.scale.log().domain(domainY).range([f.height, 0]).clamp(true);
    xAxis(f, x, logTicks(domainX[0], domainX[1], narrow ? 4 : 9), { title: "arithmetic intensity, FLOP per byte of device memory (logarithmic)" });
    yAxis(f, y, logTicks(domainY[0], domainY[1], 7), { title: "TFLOP/s (logarithmic)" });
    const memoryAt = (intensity) => (facts.memory_gbps * intensity) / 1e3;
    const start = Math.max(domainX[0], (domainY[0] * 1e3) / facts.memory_gbps);
    if (start < ridge) f.g.append("line").attr({ class: "ceiling", x1: x(start), y1: y(memoryAt(start)), x2: x(ridge), y2: y(facts.mma_tflops) });
    f.g.append("line").attr({ class: "ceiling", x1: x(ridge), y1: y(facts.mma_tflops), x2: f.width, y2: y(facts.mma_tflops) });
    binding.map(exponentialCeiling).filter((ceiling) => ceiling >= domainY[0]).forEach((ceiling) => {
      const from = (ceiling * 1e3) / facts.memory_gbps;
      f.g.append("line").attr({ class: "ceiling dashed", x1: x(Math.max(from, domainX[0])), y1: y(ceiling), x2: f.width, y2: y(ceiling) }).style("stroke", "var(--accent)");
    });
    shown.forEach((p) => {
      const at = x(p.intensity);
      const other = comparableDefault(p);
      if (other) {
        f.g.append("line").attr({ x1: at, x2: at, y1: y(p.rate(other.time)), y2: y(p.rate(p.best.time)) }).style({ stroke: "var(--best)", "stroke-width": "2px", opacity: 0.4 });
        explain(draw(f.g.append("g").attr("transform", "translate(" + at + "," + y(p.rate(other.time)) + ")"), "circle", 40, "var(--default)", true).datum(other),
          (row) => [p.name + ", default"].concat(rowLines(p)(row)));
      }
      p.peers.filter((peer) => peer.median_us > 0).forEach((peer) => {
        const mark = peerMark(peer.title);
        explain(draw(f.g.append("g").attr("transform", "translate(" + at + "," + y(p.rate(peer.median_us)) + ")"), mark.shape, 40, mark.color), () => [
          peer.title, p.name, number(peer.median_us) + " µs, " + number(p.rate(peer.median_us)) + " TFLOP/s"]);
      });
      const mark = draw(f.g.append("g").attr("transform", "translate(" + at + "," + y(p.rate(p.best.time)) + ")"), "circle", 70, "var(--best)", p.best.estimate);
      explain(mark.datum(p.best), (row) => [p.name].concat(rowLines(p)(row), [
        "bound by " + p.ceilings.bound_by + ": " + number(p.ceilings.bound_us) + " µs at least" + (row.estimate ? "" : ", " + percent(p.ceilings.bound_us / row.time) + " reached")]));
    });
    // Last, so that no mark hides them.
    const label = (at, top, words, anchor) => f.g.append("text").attr({ x: at, y: top, "text-anchor": anchor, class: "halo" }).text(words);
    // Beside the line where there is room, else on it.
    const nameCeiling = (rate, name) => {
      const words = number(rate) + " TFLOP/s";
      if (narrow) label(f.width, y(rate) - 5, name + ": " + words, "end");
      else [name, words].forEach((line, i) => label(f.width + 6, y(rate) - 2 + 14 * i, line, "start"));
    };
    nameCeiling(facts.mma_tflops, "mma.sync");
    const angle = (Math.atan2(y(memoryAt(start)) - y(facts.mma_tflops), x(ridge) - x(start)) * 180) / Math.PI;
    if (start < ridge && x(ridge) - x(start) > 60) {
      label(0, 0, number(facts.memory_gbps) + " GB/s", "middle").attr("transform",
        "translate(" + (x(start) + x(ridge)) / 2 + "," + (y(memoryAt(start)) + y(facts.mma_tflops)) / 2 + ") rotate(" + -angle + ") translate(0,-7)");
    }
    binding.filter((d) => exponentialCeiling(d) >= domainY[0]).forEach((d) => nameCeiling(exponentialCeiling(d), "exponentials, D = " + d));
    table(byId("roofline-table"), [
      { title: "shape", value: (p) => p.name, className: "nowrap" },
      { title: "TFLOP", value: (p) => number(p.flops / 1e12), number: true },
      { title: "MB", value: (p) => number(p.bytes / 1e6), number: true },
      { title: "FLOP/byte", value: (p) => fixed(0)(p.intensity), number: true },
      { title: "products µs", value: (p) => number(p.ceilings.matrix_us), number: true },
      { title: "exponentials µs", value: (p) => number(p.ceilings.exponential_us), number: true },
      { title: "memory µs", value: (p) => number(p.ceilings.memory_us), number: true },
      { title: "bound by", value: (p) => p.ceilings.bound_by, className: "nowrap" },
      { title: "best µs", value: (p) => (p.best.estimate ? "not measured" : number(p.best.time)), number: true },
      { title: "of roofline", value: (p) => (p.best.estimate ? "" : percent(p.ceilings.bound_us / p.best.time)), number: true },
      { title: "default", value: (p) => comparableDefault(p) && !p.best.estimate ? percent(p.ceilings.bound_us / p.default.time) : "", number: true },
    ], shown);
  }

  // ---- model and measurement ----------------------------------------------------------------------------------------

  /// How good the configs are, in the order in which the model would try them.
  function drawModelOrder(first) {
    const node = byId("model-order-plot");
    const order = standing(problem.trials || []).filter((row) => !row.estimate && row.predicted_us > 0)
      .sort((a, b) => a.predicted_us - b.predicted_us || text(a.config, b.config));
    const timed = order.filter((row) => row.ok);
    if (!timed.length) {
      clear(node);
      return;
    }
    const best = problem.best.time, over = (row) => row.time / best;
    const f = frame(node, {
      height: Math.min(520, Math.max(300, node.clientWidth * 0.86)), margin: { left: 52, right: 14, top: 28, bottom: 46 },
      label: "Time over the best in the order of the cost model",
    });
    const domain = [Math.min(0.98, d3.min(timed, over) / 1.01), d3.max(timed, over) * 1.06];
    const x = d3.scale.linear().domain([0, order.length + 1]).range([0, f.width]), y = d3.scale.log().domain(domain).range([f.height, 0]);
    xAxis(f, x, x.ticks(6).filter((value) => value >= 1 && Number.isInteger(value)), { title: "place in the model's order", format: fixed(0), grid: false });
    yAxis(f, y, logTicks(domain[0], domain[1], 7), { title: "time over the best (logarithmic)" });
    f.g.append("rect").attr({ x: 0, width: f.width, y: y(Math.min(data.near_best, domain[1])), height: f.height - y(Math.min(data.near_best, domain[1])) })
      .style({ fill: "var(--best)", opacity: 0.12 });
    order.forEach((row, i) => {
      if (!row.ok) return;
      const hollow = first.indexOf(row) >= 0;
      const g = f.g.append("g").attr("transform", "translate(" + x(i + 1) + "," + y(over(row)) + ")");
      explain(draw(g, "circle", hollow ? 50 : 28, hollow ? "var(--accent)" : "var(--best)", hollow).style("fill-opacity", 0.8).datum(row), (d) => [
        "place " + (i + 1) + ", " + fixed(3)(over(d)) + "× the best's time"].concat(rowLines(problem)(d)));
    });
  }

  function drawModel() {
    const node = byId("model-plot");
    const compared = (p) => standing(p.trials || []).filter((row) => row.ok && !row.estimate && row.predicted_us > 0);
    const chosen = compared(problem);
    const others = [].concat(...ofDevice().filter((p) => p !== problem).map((p) => compared(p).map((row) => ({ row, p }))));
    const first = standing(problem.trials || []).filter((row) => !row.estimate && row.predicted_us > 0)
      .sort((a, b) => a.predicted_us - b.predicted_us || text(a.config, b.config)).slice(0, problem.model ? problem.model.first : 0);
    const quality = problem.model;
    byId("model-note").textContent = quality && quality.compared
      ? problem.name + ": " + plural(quality.compared, "config") +
        (quality.rank_correlation === null ? ", too few for a rank correlation" : ", rank correlation " + quality.rank_correlation.toFixed(2)) +
        "; of the model's first " + quality.first + ", " + quality.first_near_best + " lie within " + fixed(0)((data.near_best - 1) * 100) + "\u00a0% of the best" +
        (quality.first_over_best > 0 ? " and the fastest takes " + fixed(3)(quality.first_over_best) + "× its time." : ".")
      : "Nothing was measured for " + problem.name + ": there is nothing to compare the model with.";
    if (!chosen.length && !others.length) {
      clear(node);
      clear(byId("model-order-plot"));
      clear(byId("model-legend"));
    } else {
      legend("model-legend", [
        { shape: "circle", color: "var(--best)", title: problem.name },
        { shape: "circle", color: "var(--accent)", hollow: true, title: "the model's first " + (quality ? quality.first : 0) + " of it" },
        ...(others.length ? [{ shape: "circle", color: "var(--faint)", title: "other problems of this device" }] : []),
        { line: true, color: "var(--soft)", dashed: true, title: "left: measured as predicted" },
        ...(chosen.length ? [{ shape: "square", color: "var(--best)", opacity: 0.2, title: "right: within " + fixed(0)((data.near_best - 1) * 100) + "\u00a0% of the best" }] : []),
      ]);
      const f = frame(node, { height: Math.min(520, Math.max(300, node.clientWidth * 0.86)), margin: { left: 62, right: 14, top: 28, bottom: 46 }, label: "Predicted against measured time" });
      const all = chosen.concat(others.map((other) => other.row));
      const domain = padded([].concat(...all.map((row) => [row.predicted_us, row.median_us])), 0.15);
      const x = d3.scale.log().domain(domain).range([0, f.width]), y = d3.scale.log().domain(domain).range([f.height, 0]);
      const ticks = logTicks(domain[0], domain[1], 6);
      xAxis(f, x, ticks, { title: "measured, µs (logarithmic)" });
      yAxis(f, y, ticks, { title: "predicted, µs (logarithmic)" });
      f.g.append("line").attr({ class: "ceiling dashed", x1: 0, y1: f.height, x2: f.width, y2: 0 });
      const put = (row, p, size, color, hollow, opacity) => {
        const g = f.g.append("g").attr("transform", "translate(" + x(row.median_us) + "," + y(row.predicted_us) + ")");
        explain(draw(g, "circle", size, color, hollow).style("fill-opacity", opacity).datum(row), (d) => [p.name].concat(rowLines(p)(d)));
      };
      others.forEach((other) => put(other.row, other.p, 14, "var(--faint)", false, 0.45));
      chosen.filter((row) => first.indexOf(row) < 0).forEach((row) => put(row, problem, 28, "var(--best)", false, 0.7));
      first.filter((row) => row.ok).forEach((row) => put(row, problem, 50, "var(--accent)", true, 0.9));
      drawModelOrder(first);
    }
    table(byId("model-table"), [
      { title: "shape", value: (p) => p.name, className: "nowrap" },
      { title: "configs compared", value: (p) => fixed(0)(p.model.compared), number: true },
      { title: "rank correlation", value: (p) => p.model.rank_correlation === null ? "" : p.model.rank_correlation.toFixed(3), number: true },
      { title: "model's first", value: (p) => String(p.model.first), number: true },
      { title: "of them within " + fixed(0)((data.near_best - 1) * 100) + "\u00a0%", value: (p) => String(p.model.first_near_best), number: true },
      { title: "fastest of them to best", value: (p) => p.model.first_over_best > 0 ? fixed(3)(p.model.first_over_best) : "", number: true },
      { title: "model's time of the best / measured", value: (p) => p.best.predicted_us > 0 ? fixed(2)(p.best.predicted_us / p.best.time) : "", number: true },
    ], ofDevice().filter((p) => p.model), { chosen: (p) => p === problem });
  }

  // ---- provenance ---------------------------------------------------------------------------------------------------

  function drawProvenance() {
    const groups = new Map();
    problems.forEach((p) => {
      (p.trials || [p.best, p.default].filter((row) => row)).forEach((row) => {
        const key = p.device + " " + row.provenance;
        if (!groups.has(key)) groups.set(key, { device: data.devices[p.device], from: row.provenanceOf, rows: [] });
        groups.get(key).rows.push(row);
      });
    });
    const range = (values) => {
      const known = values.filter((value) => value > 0);
      if (!known.length) return "";
      const [low, high] = d3.extent(known);
      return low === high ? String(low) : low + " – " + high;
    };
    table(byId("provenance-table"), [
      { title: "device", value: (g) => g.device.name + ", " + g.device.sm_count + " SMs", className: "nowrap" },
      { title: "driver", value: (g) => g.from.driver },
      { title: "compiler", value: (g) => g.from.compiler },
      { title: "templates", value: (g) => g.from.templates_hash, className: "mono" },
      { title: "Attune", value: (g) => g.from.attune_version },
      { title: "protocol", value: (g) => g.from.protocol, className: "text" },
      { title: "rigor", value: (g) => rigors.filter((rigor) => g.rows.some((row) => row.rigor === rigor)).join(", ") },
      { title: "rows", value: (g) => fixed(0)(g.rows.length), number: true },
      { title: "raced", value: (g) => fixed(0)(g.rows.filter((row) => row.race).length), number: true },
      { title: "samples a row", value: (g) => range(g.rows.map((row) => row.samples)), number: true },
      { title: "SM clock MHz", value: (g) => range([].concat(...g.rows.map((row) => [row.clock_low, row.clock_high]))), number: true },
      { title: "p80 / p20, median", value: (g) => {
        const timed = g.rows.filter((row) => row.median_us > 0 && row.p20_us > 0);
        return timed.length ? d3.median(timed, (row) => row.p80_us / row.p20_us).toFixed(4) : "";
      }, number: true },
      { title: "from, UTC", value: (g) => day(d3.min(g.rows, (row) => row.created_at)), className: "nowrap" },
      { title: "to", value: (g) => day(d3.max(g.rows, (row) => row.created_at)), className: "nowrap" },
    ], Array.from(groups.values()));
    table(byId("devices-table"), [
      { title: "device", value: (d) => d.name },
      { title: "SMs", value: (d) => String(d.sm_count), number: true },
      { title: "nominal MHz", value: (d) => d.known && fixed(0)(d.clock_mhz), number: true },
      { title: "mma.sync TFLOP/s", value: (d) => d.known && number(d.mma_tflops), number: true },
      { title: "exponentials per ns", value: (d) => d.known && number(d.exponentials_per_us / 1e3), number: true },
      { title: "device memory GB/s", value: (d) => d.known && number(d.memory_gbps), number: true },
      { title: "note", value: (d) => (d.known ? "ceilings from its data sheet, at the nominal clock" : "not known to this version: no ceilings, no default config") },
    ], data.devices);
    const node = clear(byId("peer-files"));
    data.peer_files.forEach((file) => {
      const versions = Object.keys(file.versions).map((what) => what + " " + file.versions[what]).join(", ");
      node.appendChild(element("p", "note", "Other libraries: " + file.file + " (" + file.gpu + (versions ? "; " + versions : "") + "), " + file.shown + " of " +
        plural(file.rows, "row") + " shown. " + file.protocol));
    });
  }

  // ---- the page -----------------------------------------------------------------------------------------------------

  function drawHeader() {
    const rows = d3.sum(problems, (p) => p.rows);
    byId("subtitle").textContent = [
      data.database, plural(problems.length, "problem"), plural(rows, "row"),
      data.devices.map((d) => d.name).join(", "), "made " + day(data.made_at) + " UTC", "Attune " + data.attune_version,
    ].join(" · ");
    const node = clear(byId("warnings"));
    const warn = (words) => node.appendChild(element("p", "warning", words));
    const estimates = problems.filter((p) => p.estimatesOnly && p.rows > p.unreadable);
    if (estimates.length === problems.length) {
      warn("Nothing was measured. All times on this page are the cost model's; its configs were checked on the emulator, which says nothing about speed.");
    } else if (estimates.length) {
      warn(plural(estimates.length, "problem") + " of " + problems.length + " " + (estimates.length === 1 ? "has" : "have") +
        " estimates only: their times are the cost model's, drawn hollow.");
    }
    const unreadable = d3.sum(problems, (p) => p.unreadable);
    if (unreadable) warn(plural(unreadable, "row") + " cannot be read by Attune " + data.attune_version + " (a newer one wrote them) and " + (unreadable === 1 ? "is" : "are") + " not shown.");
  }

  function fillProblems() {
    const select = clear(byId("problem"));
    ofDevice().forEach((p) => {
      const option = select.appendChild(element("option", "", p.name + " (" + plural(p.rows, "row") + (p.trials ? "" : ", left out") + ")"));
      option.value = p.index;
      option.selected = p === problem;
    });
  }

  function drawSearch() {
    drawFacts();
    if (problem.trials) {
      drawProgress();
      drawFields();
      drawConfigs();
    }
    drawModel();
  }
  function drawDevice() {
    drawTiles();
    drawShapes();
    drawShapesTable();
    drawRoofline();
    fillProblems();
    drawSearch();
  }
  function choose(p) {
    problem = p;
    byId("problem").value = p.index;
    drawSearch();
  }

  data.devices.forEach((d, i) => {
    const option = byId("device").appendChild(element("option", "", d.name + ", " + d.sm_count + " SMs"));
    option.value = i;
    option.selected = i === device;
  });
  byId("device-choice").hidden = data.devices.length < 2;
  byId("device").addEventListener("change", (event) => {
    device = Number(event.target.value);
    const most = ofDevice().filter((p) => p.trials).concat(ofDevice());
    problem = most.reduce((best, p) => (p.trials && p.rows > best.rows ? p : best), most[0]);
    drawDevice();
  });
  byId("problem").addEventListener("change", (event) => choose(problems[Number(event.target.value)]));

  const themes = ["system", "light", "dark"];
  byId("theme").addEventListener("click", () => {
    const next = themes[(themes.indexOf(document.documentElement.dataset.theme || "system") + 1) % themes.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    byId("theme").textContent = "theme: " + next;
  });

  drawHeader();
  drawDevice();
  drawProvenance();
  let width = document.documentElement.clientWidth, waiting = 0;
  window.addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(drawDevice, 150);
  });
  document.documentElement.dataset.drawn = "yes";
})();
