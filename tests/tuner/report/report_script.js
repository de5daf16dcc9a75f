"use strict";
// Run by report_script.cpp behind words.js and rows.js of the report, without a browser: node THIS DOCUMENT.
const assert = require("assert");
const report = JSON.parse(require("fs").readFileSync(process.argv[2], "utf8"));
const all = readProblems(report);
const everyRow = (p) => p.trials || [p.best, p.default].filter((row) => row);
const devices = distinct(all.map((p) => p.device));
const anything = { device: 0, search: "", pass: "", dtype: "", mask: "", head_dim: "" };
const wanted = (changes) => all.filter((p) => isWanted(p, Object.assign({}, anything, changes)));

const checks = {
  "no label stands for two problems, over both passes"() {
    const labels = all.map((p) => p.device + " " + p.name);
    assert.strictEqual(new Set(labels).size, labels.length);
    all.forEach((p) => assert.strictEqual(p.name.split(" ")[0], p.pass));
    assert.deepStrictEqual(distinct(all.map((p) => p.pass)).sort(), ["backward", "forward"]);
  },
  "no row reaches more than 100 % of its roofline"() {
    let seen = 0;
    all.forEach((p) => everyRow(p).map(reachedBy).filter((share) => share !== null).forEach((share) => {
      ++seen;
      assert(share > 0 && share <= 1, p.name + ": " + share);
    }));
    assert(seen >= all.length);
  },
  "each filter splits the problems, and finds by the words of a label"() {
    kFilters.forEach(({ key }) => {
      const values = distinct(all.map((p) => String(p[key])));
      assert(values.length > 1, key);
      const parts = devices.flatMap((device) => values.map((value) => wanted({ device, [key]: value }).length));
      assert.strictEqual(sum(parts), all.length, key);
    });
    const found = wanted({ pass: "backward", head_dim: "128", search: "CAUSAL  s1024" });
    assert(found.length > 0 && found.length < all.length);
    found.forEach((p) => assert(/^backward (bf16|fp16) B\d+ H\d+(\/\d+)? S1024 D128 causal/.test(p.name), p.name));
    assert.strictEqual(wanted({ search: "no such word" }).length, 0);
    assert.strictEqual(wanted({ device: devices.length }).length, 0);
    assert(wanted({ search: "scheduler=static-persistent" }).every((p) => p.best.config.includes("scheduler=static-persistent")));
  },
  "orders: by gain the greatest first, those without a value last, nothing lost"() {
    ordersOf([]).forEach((order) => {
      const sorted = inOrderOf(all, order);
      assert.strictEqual(new Set(sorted).size, all.length, order.key);
      const values = sorted.map(order.value).map((value) => (value === null ? NaN : value));
      const known = values.filter((value) => !Number.isNaN(value));
      assert(values.slice(known.length).every(Number.isNaN), order.key);
      known.forEach((value, i) => assert(i === 0 || (order.descending ? known[i - 1] >= value : known[i - 1] <= value), order.key));
    });
    const gains = inOrderOf(all, ordersOf([]).find((order) => order.key === "gain"));
    assert(gainOf(gains[0]) > 1.05);
    assert.deepStrictEqual(inOrderOf(all, ordersOf([]).find((order) => order.key === "shape")), all);
  },
  "the page begins with the shapes that people look for: D = 128 without many features, none of D = 8"() {
    const first = inOrderOf(wanted({ device: report.problems[report.selected].device }), ordersOf([])[0]);
    first.slice(0, 25).forEach((p) => assert(p.head_dim === 128 && p.name.split(" ").length <= 7, p.name));
    assert(first.findIndex((p) => p.head_dim === 8) > first.length / 2);
    assert(first[0].flops > first[10].flops);
  },
  "a head sorts by the numbers that are shown, rows without one last, ties as they were"() {
    const keys = ["1,234", "−2.5 %", "0.5 – 9", "", "not measured", "12×"].map((shown) => sortKey(shown, true));
    assert.deepStrictEqual(keys, [1234, -2.5, 0.5, null, null, 12]);
    const rows = ["b10", "", "a", "b9"];
    const by = (row) => sortKey(row, false);
    assert.deepStrictEqual(sortedBy(rows, by, false), ["a", "b9", "b10", ""]);
    assert.deepStrictEqual(sortedBy(rows, by, true), ["b10", "b9", "a", ""]);
    const times = sortedBy(all, (p) => p.best && p.best.time, true);
    assert.strictEqual(times.length, all.length);
    times.forEach((p, i) => assert(i === 0 || !p.best || times[i - 1].best.time >= p.best.time));
    assert.deepStrictEqual(sortedBy([1, 2, 3], () => 0, true), [1, 2, 3]);
  },
  "what is asked for survives the address"() {
    const asked = { pass: "forward", head_dim: "128", find: "a&b=c #? ü", order: "", problem: "forward bf16 B4 H16/4 S4096 D128 causal@5" };
    const fragment = fragmentOf("search", asked);
    assert(!/[\s#]/.test(fragment), fragment);
    const { order, ...given } = asked;
    assert.deepStrictEqual(askedIn(fragment), { section: "search", asked: given });
    assert.deepStrictEqual(askedIn("roofline"), { section: "roofline", asked: {} });
    assert.deepStrictEqual(askedIn(""), { section: "", asked: {} });
    assert.strictEqual(fragmentOf("", {}), "");
  },
  "the roofline names what each family multiplies by, on a device that has it"() {
    const both = instructionWords(report.families, ["mma.sync", "wgmma"]);
    assert.strictEqual(both, "mma.sync in kernels of sm80 (forward, backward); wgmma in kernels of sm90 (forward, backward)");
    assert(!instructionWords(report.families, ["mma.sync"]).includes("sm90"));
  },
  "the search that is opened is a measured one with most rows"() {
    const make = (measured, trials, rows) => ({ measured, trials, rows });
    const best = make(true, [], 5);
    assert.strictEqual(openedFirst([make(false, [], 90), make(true, null, 80), make(true, [], 4), best, make(true, [], 5)]), best);
    assert.strictEqual(openedFirst([]), null);
    assert(all[report.selected].measured);
  },
  "ceilings are those of the pass: an exponential serves 4 D FLOP forward and 10 D backward"() {
    const of = (pass) => ceilingsOf(report.devices[0], all.filter((p) => p.pass === pass && [16, 128].includes(p.head_dim)));
    const forward = of("forward"), backward = of("backward");
    assert.deepStrictEqual(forward.products.map((ceiling) => ceiling.name), ["wgmma", "mma.sync"]);
    assert.strictEqual(Math.round(forward.fastest), 1071);
    assert.deepStrictEqual(forward.exponentials.map((ceiling) => ceiling.headDim), [16]);
    const rate = (132 * 1980 * 16) / 1e6;
    assert(Math.abs(forward.exponentials[0].tflops / (4 * 16 * rate) - 1) < 1e-9);
    assert(Math.abs(backward.exponentials[0].tflops / (10 * 16 * rate) - 1) < 1e-9);
  },
  "each config stands by the newest row of its highest rigor; failures group by reason"() {
    const row = (config, rigor, time) => ({ config, rigor, time });
    const rows = [row("a", "patient", 1), row("b", "measure", 2), row("a", "measure", 3), row("b", "measure", 4)];
    assert.deepStrictEqual(standing(rows).map((found) => found.time), [1, 4]);
    const failed = (config, status, reason) => ({ config, status, reason });
    const groups = failureGroups([failed("a", "spilled", "8 bytes"), failed("b", "crashed", "signal 11"), failed("c", "spilled", "16 bytes"), failed("d", "ok", "")]);
    assert.deepStrictEqual(groups.map((group) => [group.status, group.configs.length, group.several]), [["spilled", 2, true], ["crashed", 1, false]]);
  },
  "a peer stands to the run that it was timed in, else to the stored row; wrong ones not at all"() {
    const p = { best: { time: 10 }, measured: true, peers: [] };
    assert.deepStrictEqual(toPeer(p, { within: true, median_us: 15, attune_us: 12 }), { value: 1.25, same: true });
    assert.deepStrictEqual(toPeer(p, { within: true, median_us: 15 }), { value: 1.5, same: false });
    assert.strictEqual(toPeer(p, { within: false, median_us: 15, attune_us: 12 }), null);
    assert.strictEqual(toPeer(p, { error: "no kernel" }), null);
  },
  "ticks are round, in order, inside of the domain and not too many"() {
    [[1, 3], [0.98, 1.4], [5, 80], [3, 9000], [1e-3, 1e6], [82.1, 86.3]].forEach(([low, high]) => {
      const ticks = logTicks(low, high, 7);
      assert(ticks.length >= 2 && ticks.length <= 12, low + " to " + high + ": " + ticks);
      ticks.forEach((value, i) => assert(value >= low * 0.999 && value <= high * 1.001 && (i === 0 || value > ticks[i - 1])));
    });
    assert.deepStrictEqual(placeTicks(2, 10), [1, 2]);
    assert.deepStrictEqual(placeTicks(1270, 5), [500, 1000]);
  },
  "labels are broken into lines and pushed apart"() {
    assert.deepStrictEqual(onLines("heads-reversed", 8), ["heads-", "reversed"]);
    assert.deepStrictEqual(onLines("those of a group", 8), ["those of", "a group"]);
    assert.deepStrictEqual(onLines(128, 2), ["128"]);
    assert.deepStrictEqual(pushedApart([10, 11, 12, 60], 10, 0, 100), [10, 20, 30, 60]);
    assert.deepStrictEqual(pushedApart([95, 96, 99], 10, 0, 100), [80, 90, 100]);
  },
  "numbers"() {
    assert.deepStrictEqual([0, 0.01234, 1.5, 123.456, 12345.6].map(number), ["0", "0.0123", "1.50", "123.5", "12,346"]);
    assert.strictEqual(signedPercent(-0.0123), "−1.2\u00a0%");
    assert.strictEqual(median([3, 1, 2, 10]), 2.5);
    assert.strictEqual(most(new Array(300000).fill(1)), 1);
  },
};
Object.keys(checks).forEach((name) => {
  try {
    checks[name]();
  } catch (error) {
    console.log("FAILED: " + name + "\n" + error.stack);
    process.exitCode = 1;
  }
});
console.log(Object.keys(checks).length + " checks run");
