"use strict";
// What the page shows at the moment, and what all of its parts say of a row.

const data = JSON.parse(byId("data").textContent);
const problems = readProblems(data);
const peerTitles = inOrder(distinct([].concat(...problems.map((p) => p.peers.map((peer) => peer.title)))));
const orders = ordersOf(peerTitles);
const peerLook = (title) => peerMark(peerTitles.indexOf(title));

const view = {
  wanted: { device: problems[data.selected].device, search: "", pass: "", dtype: "", mask: "", head_dim: "" },
  order: orders[0],
  problem: problems[data.selected],  // whose search is shown
  named: false,                      // the reader has chosen it
  section: "",                       // that the address names
  shown: [],                         // the wanted problems in their order
};
const deviceTitle = (d) => d.name + ", " + d.sm_count + " SMs";
const deviceOf = (p) => data.devices[p.device];
const passesOf = (some) => ["forward", "backward"].filter((pass) => some.some((p) => p.pass === pass));
const workOfPass = { forward: "4·D", backward: "10·D" };
const workWords = (passes) =>
  passes.map((pass) => workOfPass[pass] + (passes.length > 1 ? " " + pass : "")).join(", ") + " FLOP for each attended pair";

const how = (row) =>
  row.estimate ? "cost model's estimate"
  : row.rigor + (row.race ? ", raced: " + (row.place === 1 ? "winner" : "place " + row.place) : "");
const spread = (row) => (row.estimate || !(row.median_us > 0) ? "" : number(row.p20_us) + " – " + number(row.p80_us));

/// What the tooltip of a row's mark says, after what names it.
const rowLines = (p, row) => [
  row.config,
  row.status !== "ok" ? words(row.status) + (row.reason ? ": " + clipped(row.reason, 300) : "")
  : row.estimate ? "correct on the emulator, not timed"
  : number(row.median_us) + " µs (p20 to p80: " + spread(row) + "), " + number(p.rate(row.median_us)) + " TFLOP/s",
  row.wide_median_us > 0 ? number(row.wide_median_us) + " µs with scores 8 times as wide" : "",
  row.predicted_us > 0 ? "cost model: " + number(row.predicted_us) + " µs" : "",
  how(row) + (row.samples ? ", " + plural(row.samples, "sample") : "") + (row.sm_clock_mhz ? ", " + row.sm_clock_mhz + " MHz" : ""),
  row.registers ? row.registers + " registers, " + row.spill_bytes + " bytes spilled, " + whole(row.shared_bytes) + " bytes shared" : "",
  (row.source_hash ? "source " + row.source_hash + ", " : "") + day(row.created_at) + " UTC",
];
const peerLines = (p, peer) => [
  peer.title + (peer.within ? "" : ": WRONG OUTPUT"), p.name,
  number(peer.median_us) + " µs (p20 to p80: " + number(peer.p20_us) + " – " + number(peer.p80_us) + "), " + number(p.rate(peer.median_us)) + " TFLOP/s",
  peer.attune_us > 0 ? "Attune in the same run: " + number(peer.attune_us) + " µs with " + peer.attune_config : "",
];
const timedPeers = (p) => p.peers.filter((peer) => peer.median_us > 0);
const withPeers = (some) => peerTitles.filter((title) => some.some((p) => timedPeers(p).some((peer) => peer.title === title)));

/// Marks of every peer's times, hollow where its output was wrong: at(p, peer, i) gives the point of the i-th problem.
const peerMarks = (some, size, at) => [].concat(...withPeers(some).map((title) => [true, false].map((right) => marks(
  [].concat(...some.map((p, i) => timedPeers(p).filter((peer) => peer.title === title && Boolean(peer.within) === right).map((peer) => at(p, peer, i)))),
  Object.assign({ size, hollow: !right }, peerLook(title))))));

const bestLook = { shape: "circle", color: "--best", size: 5 };
const estimateLook = { shape: "circle", color: "--best", size: 5, hollow: true };
const defaultLook = { shape: "circle", color: "--default", size: 4, hollow: true };
