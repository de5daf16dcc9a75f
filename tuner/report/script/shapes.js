"use strict";
// "Best of each shape": tiles, a picture with a line for each shape, tables.

const kShapesAtOnce = 30;   // on the picture, until all are asked for
const kShapesOfCanvas = 60;  // a canvas must not be taller than browsers let it be

function drawTiles() {
  const node = clear(byId("tiles"));
  const tile = (value, label) => {
    const made = node.appendChild(element("div", "tile"));
    made.appendChild(element("div", "value", value));
    made.appendChild(element("div", "label", label));
  };
  const shown = view.shown.filter((p) => p.best);
  const measured = shown.filter((p) => p.measured);
  tile(whole(view.shown.length), (view.shown.length === 1 ? "shape" : "shapes") + " with results, " + whole(measured.length) + " of them measured");
  const gains = (measured.length ? measured : shown).map(gainOf).filter((gain) => gain !== null);
  if (gains.length) {
    tile(ratio(geometricMean(gains)), "the default's speed, geometric mean of " + plural(gains.length, "shape") + (measured.length ? "" : ", by the cost model"));
  }
  const reached = measured.map((p) => reachedBy(p.best)).filter((share) => share !== null);
  if (reached.length) tile(percent(median(reached)), "of the roofline of its kernel, median; best " + percent(most(reached)));
  peerTitles.forEach((title) => {
    const ratios = view.shown.map((p) => toPeer(p, peerOf(p, title))).filter((found) => found);
    if (ratios.length) {
      tile(ratio(geometricMean(ratios.map((found) => found.value))), "the speed of " + title + ", geometric mean of " + plural(ratios.length, "shape") +
        (ratios.every((found) => found.same) ? ", each in the same run" : ""));
    }
  });
}

const ratesOf = (p) => [p.rate(p.best.time)].concat(comparableDefault(p) ? [p.rate(p.default.time)] : [], timedPeers(p).map((peer) => p.rate(peer.median_us)));

function drawShapes(all) {
  const node = byId("shapes-plot");
  const shapes = view.shown.filter((p) => p.best);
  const shown = all ? shapes : shapes.slice(0, kShapesAtOnce);
  const estimates = shown.filter((p) => p.best.estimate).length;
  empty(node);
  offerRest(node, shown.length < shapes.length ? "show all " + whole(shapes.length) + " shapes" : null, () => drawShapes(true));
  byId("shapes-note").textContent = !shown.length ? ""
    : "TFLOP/s of counted work: " + workWords(passesOf(shown)) + ". The thin bar spans p20 to p80; right: speed over the default." +
      (estimates ? " Hollow: the cost model's estimate, not a measurement." : "");
  legend("shapes-legend", !shown.length ? [] : [
    ...(estimates < shown.length ? [Object.assign({ title: "best config" }, bestLook)] : []),
    Object.assign({ title: "default config" }, defaultLook),
    ...(estimates ? [Object.assign({ title: "best by the cost model" }, estimateLook)] : []),
    ...withPeers(shown).map((title) => Object.assign({ title }, peerLook(title))),
  ]);
  if (!shown.length) {
    node.appendChild(element("p", "note", view.shown.length ? "No config of these shapes is both right and timed: nothing can be chosen." : "No shape is as it is asked for."));
    return;
  }
  const highest = most([].concat(...shown.map(ratesOf))) * 1.04;
  for (let from = 0; from < shown.length; from += kShapesOfCanvas) {
    drawShapesFrom(node.appendChild(element("div")), shown.slice(from, from + kShapesOfCanvas), highest);
  }
  node.dataset.shapes = shown.length;
}

function drawShapesFrom(holder, shapes, highest) {
  const narrow = isNarrow(holder.clientWidth);
  const each = narrow ? 44 : 26;
  const names = widestOf(shapes.map((p) => p.name), 12) + 14;
  picture(holder, shapes.length * each + 62, () => {
    const at = (p, i, us, lines) => ({ x: p.rate(us), y: i, lines });
    const best = shapes.map((p, i) => at(p, i, p.best.time, () => [p.name].concat(rowLines(p, p.best))));
    const defaults = shapes.map((p, i) => comparableDefault(p) && at(p, i, p.default.time, () => [p.name + ", default"].concat(rowLines(p, p.default))));
    return {
      label: "Rate of the best config of each shape beside the default and other libraries",
      datasets: [
        ...peerMarks(shapes, 5, (p, peer, i) => at(p, i, peer.median_us, () => peerLines(p, peer))),
        marks(defaults.filter((point) => point), defaultLook),
        marks(best.filter((point, i) => !shapes[i].best.estimate), bestLook),
        marks(best.filter((point, i) => shapes[i].best.estimate), estimateLook),
      ],
      padding: { right: narrow ? 46 : 58, top: 22 },
      scales: {
        x: axis("linear", [0, highest], { title: "TFLOP/s", most: narrow ? 5 : 9 }),
        y: axis("linear", [narrow ? -0.75 : -0.5, shapes.length - (narrow ? 0.75 : 0.5)], {
          reverse: true, at: shapes.map((p, i) => i), format: (value) => (narrow ? "" : shapes[value].name), grid: false, size: 12, width: narrow ? 4 : names,
        }),
      },
      under: (context, { scales: { x, y }, chartArea: area }) => {
        shapes.forEach((p, i) => {
          const top = y.getPixelForValue(i), to = x.getPixelForValue(p.rate(p.best.time));
          strokeLine(context, area.left, top, area.right, top, { color: colorOf("--grid") });
          if (comparableDefault(p)) strokeLine(context, x.getPixelForValue(p.rate(p.default.time)), top, to, top, { color: faded("--best", 0.45), width: 3 });
        });
      },
      over: (context, { scales: { x, y }, chartArea: area, width }) => {
        write(context, "to default", width - 2, area.top - 10, { align: "right", size: 11 });
        shapes.forEach((p, i) => {
          const top = y.getPixelForValue(i);
          if (p.measured) strokeLine(context, x.getPixelForValue(p.rate(p.best.p80_us)), top, x.getPixelForValue(p.rate(p.best.p20_us)), top, { color: colorOf("--ink"), width: 1.5 });
          if (gainOf(p) !== null) write(context, ratio(gainOf(p)), width - 2, top, { align: "right", color: "--ink" });
          if (narrow) write(context, p.name, 2, top - 16, { color: "--ink", room: width - 6 });
        });
      },
    };
  });
}

function drawShapesTable() {
  const link = (p) => {
    const made = element("a", "plain", p.name);
    made.href = "#search";
    made.addEventListener("click", (event) => {
      event.preventDefault();
      choose(p);
      goTo("search");
    });
    return made;
  };
  table(byId("shapes-table"), [
    { title: "shape", value: link, className: "nowrap" },
    { title: "µs", value: (p) => p.best && number(p.best.time), by: (p) => p.best && p.best.time, number: true },
    { title: "p20 – p80", value: (p) => p.best && spread(p.best), number: true },
    { title: "TFLOP/s", value: (p) => p.best && number(p.rate(p.best.time)), by: (p) => p.best && p.rate(p.best.time), number: true },
    { title: "to default", value: (p) => gainOf(p) !== null && ratio(gainOf(p)), by: gainOf, number: true },
    ...peerTitles.map((title) => ({
      title: "to " + title,
      value: (p) => {
        const found = toPeer(p, peerOf(p, title));
        return found && ratio(found.value) + (found.same ? "" : " *");
      },
      number: true,
    })),
    { title: "of roofline", value: (p) => reachedBy(p.best) !== null && percent(reachedBy(p.best)), by: (p) => reachedBy(p.best), number: true },
    { title: "best config", value: (p) => p.best && p.best.config, className: "mono nowrap" },
    { title: "MHz", value: (p) => p.best && p.best.sm_clock_mhz ? p.best.sm_clock_mhz : "", number: true },
    { title: "how", value: (p) => (p.best ? how(p.best) : "no config was right and timed"), className: "nowrap" },
    { title: "rows", value: (p) => whole(p.rows), number: true },
  ], view.shown);
  const rows = [].concat(...view.shown.map((p) => p.peers.map((peer) => ({ p, peer }))));
  byId("peers-part").hidden = rows.length === 0;
  table(byId("peers-table"), [
    { title: "shape", value: (r) => r.p.name, className: "nowrap" },
    { title: "library", value: (r) => r.peer.title + (r.peer.within ? "" : ": wrong output"), className: "nowrap" },
    { title: "µs", value: (r) => r.peer.median_us && number(r.peer.median_us), number: true },
    { title: "p20 – p80", value: (r) => r.peer.median_us && number(r.peer.p20_us) + " – " + number(r.peer.p80_us), number: true },
    { title: "TFLOP/s", value: (r) => r.peer.median_us && number(r.p.rate(r.peer.median_us)), number: true },
    { title: "Attune, same run: µs", value: (r) => r.peer.attune_us && number(r.peer.attune_us), number: true },
    { title: "ratio, same run", value: (r) => r.peer.attune_us && ratio(r.peer.median_us / r.peer.attune_us), number: true },
    { title: "ratio to the database's best", value: (r) => r.peer.median_us && r.p.measured && ratio(r.peer.median_us / r.p.best.time), number: true },
    { title: "Attune's config in that run, or why there is no time", value: (r) => r.peer.error || r.peer.attune_config, className: "nowrap" },
  ], rows);
}
