"use strict";
// "Roofline": a picture for each pass, since an exponential serves other work in each; a table of what binds each shape.

function drawRoofline() {
  const facts = data.devices[view.wanted.device];
  const shown = view.shown.filter((p) => p.best && p.ceilings);
  const holder = byId("roofline-plots");
  empty(holder);
  byId("roofline-note").textContent =
    !facts.known ? "The ceilings of " + facts.name + " are not known to this version: no roofline."
    : !shown.length ? "There is no time to show."
    : "Ceilings of " + facts.name + " at its boost clock of " + whole(facts.clock_mhz) + " MHz: matrix products " +
      Object.keys(facts.matrix_tflops).map((name) => "by " + name + " " + number(facts.matrix_tflops[name]) + " TFLOP/s").join(", ") + "; device memory " +
      number(facts.memory_gbps) + " GB/s; exponentials, one for each attended pair. Counted work over the fewest bytes. A kernel's own ceiling is that of the " +
      "instruction that it multiplies by: " + instructionWords(data.families, Object.keys(facts.matrix_tflops)) + ".";
  legend("roofline-legend", !shown.length ? [] : [
    ...(shown.some((p) => p.measured) ? [Object.assign({ title: "best config" }, bestLook)] : []),
    ...(shown.some((p) => !p.measured) ? [Object.assign({ title: "best by the cost model" }, estimateLook)] : []),
    Object.assign({ title: "default config" }, defaultLook),
    ...withPeers(shown).map((title) => Object.assign({ title }, peerLook(title))),
    { line: true, color: "--soft", title: "ceilings: products, device memory" },
    ...(passesOf(shown).some((pass) => ceilingsOf(facts, shown.filter((p) => p.pass === pass)).exponentials.length)
      ? [{ line: true, dashed: true, color: "--accent", title: "ceiling: exponentials" }] : []),
  ]);
  passesOf(shown).forEach((pass) => {
    const part = holder.appendChild(element("div", "pass"));
    const ofPass = shown.filter((p) => p.pass === pass);
    part.appendChild(element("div", "panel-title", pass + ": " + workWords([pass])));
    if (isNarrow(holder.clientWidth)) part.appendChild(element("p", "note small", ceilingWords(ceilingsOf(facts, ofPass))));
    drawRooflineOf(part.appendChild(element("div", "plot")), facts, pass, ofPass);
  });
  table(byId("roofline-table"), [
    { title: "shape", value: (p) => p.name, className: "nowrap" },
    { title: "TFLOP", value: (p) => number(p.flops / 1e12), by: (p) => p.flops, number: true },
    { title: "MB", value: (p) => number(p.bytes / 1e6), number: true },
    { title: "FLOP/byte", value: (p) => whole(p.intensity), number: true },
    ...Object.keys(facts.matrix_tflops || {}).map((name) => (
      { title: "products by " + name + " µs", value: (p) => p.ceilings.matrix_us[name] && number(p.ceilings.matrix_us[name]), number: true })),
    { title: "exponentials µs", value: (p) => number(p.ceilings.exponential_us), number: true },
    { title: "memory µs", value: (p) => number(p.ceilings.memory_us), number: true },
    { title: "best bound by", value: (p) => p.best.bound_by, className: "nowrap" },
    { title: "its roofline µs", value: (p) => number(p.best.bound_us), number: true },
    { title: "best µs", value: (p) => (p.best.estimate ? "not measured" : number(p.best.time)), number: true },
    { title: "of roofline", value: (p) => reachedBy(p.best) !== null && percent(reachedBy(p.best)), number: true },
    { title: "default", value: (p) => reachedBy(comparableDefault(p)) !== null && percent(reachedBy(p.default)), number: true },
  ], shown);
}

const ceilingWords = ({ products, exponentials }) =>
  "TFLOP/s at most: " + products.map(({ name, tflops }) => name + ": " + number(tflops)).join(", ") +
  (exponentials.length ? "; exponentials at " + exponentials.map(({ headDim, tflops }) => "D = " + headDim + ": " + number(tflops)).join(", ") : "") + ".";

function drawRooflineOf(holder, facts, pass, shown) {
  const { products, exponentials, fastest } = ceilingsOf(facts, shown);
  const narrow = isNarrow(holder.clientWidth);
  const rates = [].concat(...shown.map(ratesOf));
  const ridge = (tflops) => (tflops * 1e3) / facts.memory_gbps;
  const memoryAt = (intensity) => (facts.memory_gbps * intensity) / 1e3;
  const domainX = [Math.min(ridge(fastest) / 3, least(shown.map((p) => p.intensity)) / 1.6), Math.max(ridge(fastest) * 3, most(shown.map((p) => p.intensity)) * 1.6)];
  const domainY = [least(rates) / 1.6, Math.max(fastest, most(rates)) * 1.35];
  const seen = exponentials.filter((ceiling) => ceiling.tflops > domainY[0]);
  const at = (p, us, lines) => ({ x: p.intensity, y: p.rate(us), lines });
  const bestPoint = (p) => at(p, p.best.time, () => [p.name].concat(rowLines(p, p.best), [
    "bound by " + p.best.bound_by + ": " + number(p.best.bound_us) + " µs at least" + (p.measured ? ", " + percent(reachedBy(p.best)) + " reached" : "")]));
  const start = Math.max(domainX[0], (domainY[0] * 1e3) / facts.memory_gbps);
  picture(holder, narrow ? 340 : 420, () => ({
    label: "Roofline of " + facts.name + ", " + pass,
    datasets: [
      ...(start < ridge(fastest) ? [line([{ x: start, y: memoryAt(start) }, { x: ridge(fastest), y: fastest }], { color: "--soft" })] : []),
      ...products.map(({ tflops }) => line([{ x: ridge(tflops), y: tflops }, { x: domainX[1], y: tflops }], { color: "--soft" })),
      ...seen.map(({ tflops }) => line([{ x: Math.max(ridge(tflops), domainX[0]), y: tflops }, { x: domainX[1], y: tflops }], { color: "--accent", dashed: true })),
      marks(shown.filter(comparableDefault).map((p) => at(p, p.default.time, () => [p.name + ", default"].concat(rowLines(p, p.default)))), Object.assign({}, defaultLook, { size: 3 })),
      ...peerMarks(shown, 4, (p, peer) => at(p, peer.median_us, () => peerLines(p, peer))),
      marks(shown.filter((p) => p.measured).map(bestPoint), Object.assign({}, bestLook, { size: 4, opacity: 0.85 })),
      marks(shown.filter((p) => !p.measured).map(bestPoint), Object.assign({}, estimateLook, { size: 4 })),
    ],
    padding: { right: narrow ? 68 : 130, top: 10 },
    scales: {
      x: logAxis(domainX, narrow ? 4 : 9, { title: narrow ? "FLOP per byte (logarithmic)" : "arithmetic intensity, FLOP per byte of device memory (logarithmic)" }),
      y: logAxis(domainY, 7, { title: "TFLOP/s (logarithmic)" }),
    },
    under: (context, { scales: { x, y } }) => {
      shown.filter(comparableDefault).forEach((p) => {
        const left = x.getPixelForValue(p.intensity);
        strokeLine(context, left, y.getPixelForValue(p.rate(p.default.time)), left, y.getPixelForValue(p.rate(p.best.time)), { color: faded("--best", 0.4), width: 2 });
      });
    },
    over: (context, { scales: { x, y }, chartArea: area }) => nameCeilings(context, x, y, area, { narrow, ceilings: products.concat(seen), facts, start, ridge: ridge(fastest), fastest, memoryAt }),
  }));
}

/// The ceilings' names beside the picture, with their rates where there is room (else these stand above it), pushed apart
/// so that none hides another.
function nameCeilings(context, x, y, area, { narrow, ceilings, facts, start, ridge, fastest, memoryAt }) {
  const ordered = ceilings.slice().sort((a, b) => b.tflops - a.tflops);
  const tops = ordered.map(({ tflops }) => y.getPixelForValue(tflops));
  const heights = pushedApart(tops, narrow ? 12 : 14, area.top - 4, area.bottom - 14);
  ordered.forEach(({ name, tflops }, i) => {
    strokeLine(context, area.right, tops[i], area.right + 9, heights[i], { color: colorOf("--line") });
    write(context, narrow ? name : name + ": " + number(tflops), area.right + 11, heights[i], { size: narrow ? 10 : 11 });
  });
  const from = { x: x.getPixelForValue(start), y: y.getPixelForValue(memoryAt(start)) };
  const to = { x: x.getPixelForValue(ridge), y: y.getPixelForValue(fastest) };
  if (start < ridge && to.x - from.x > 60) {
    const turn = Math.atan2(to.y - from.y, to.x - from.x);
    write(context, number(facts.memory_gbps) + " GB/s", (from.x + to.x) / 2 + 9 * Math.sin(turn), (from.y + to.y) / 2 - 9 * Math.cos(turn), { align: "center", size: 11, halo: true, turn });
  }
}
