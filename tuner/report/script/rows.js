"use strict";
// The report's document as the page works with it: rows, problems, which of them are asked for, and in what order.
// No document of the browser's: what is here can be run without one.

const kRigors = ["estimate", "measure", "patient", "exhaustive"];

function readRow(data, values) {
  const row = {};
  data.columns.forEach((column, i) => (row[column] = values[i]));
  const config = data.configs[row.config];
  row.config = config.text;
  row.fields = config.fields;
  row.provenanceOf = data.provenance[row.provenance];
  row.estimate = row.rigor === "estimate";
  // What rows are ranked by: the median, for an estimate the prediction.
  row.time = row.estimate ? row.predicted_us : row.median_us;
  row.ok = row.status === "ok" && row.time > 0;
  return row;
}

function readProblems(data) {
  return data.problems.map((given, index) => {
    const problem = Object.assign({}, given, { index });
    problem.best = given.best && readRow(data, given.best);
    problem.default = given.default && readRow(data, given.default);
    problem.trials = given.trials && given.trials.map((values) => readRow(data, values));
    problem.estimatesOnly = Object.keys(given.rigors).every((rigor) => rigor === "estimate");
    problem.measured = Boolean(problem.best && !problem.best.estimate);
    problem.intensity = given.flops / given.bytes;
    problem.rate = (microseconds) => given.flops / microseconds / 1e6;
    problem.searchable = [given.name, given.problem, problem.best ? problem.best.config : ""].join(" ").toLowerCase();
    return problem;
  });
}

/// Each config by the newest row of its highest rigor, in the order of their first rows.
function standing(rows) {
  const found = new Map();
  rows.forEach((row) => {
    const known = found.get(row.config);
    if (!known || kRigors.indexOf(row.rigor) >= kRigors.indexOf(known.rigor)) found.set(row.config, row);
  });
  return Array.from(found.values());
}
const byRank = (a, b) =>
  kRigors.indexOf(b.rigor) - kRigors.indexOf(a.rigor) || text(b.race, a.race) || a.place - b.place || a.time - b.time ||
  text(a.config, b.config);
const byPrediction = (a, b) => a.predicted_us - b.predicted_us || text(a.config, b.config);

/// The default only where it is a time of the same kind as the best.
const comparableDefault = (p) =>
  p.best && p.default && p.default.ok && p.default.estimate === p.best.estimate ? p.default : null;
/// The default's time over the best's; null where there are not both.
const gainOf = (p) => (comparableDefault(p) ? p.default.time / p.best.time : null);
/// The share of its own kernel's roofline that a measured row reaches; null where there is no time or no ceiling.
const reachedBy = (row) => (row && row.ok && !row.estimate && row.bound_us > 0 ? row.bound_us / row.time : null);

const peerOf = (p, title) => p.peers.find((peer) => peer.title === title);
/// How a peer stands to Attune: in its own run where the file has that, else to the database's row.
function toPeer(p, peer) {
  if (!peer || peer.error || !peer.within) return null;
  if (peer.attune_us > 0) return { value: peer.median_us / peer.attune_us, same: true };
  return p.measured ? { value: peer.median_us / p.best.time, same: false } : null;
}

/// Failed rows by status and reason, the most frequent first; reasons that differ in their numbers alone are one.
function failureGroups(rows) {
  const groups = new Map();
  rows.filter((row) => row.status !== "ok").forEach((row) => {
    const key = row.status + "\n" + row.reason.replace(/[0-9][0-9.,e+-]*/g, "#");
    const group = groups.get(key) || { status: row.status, reason: row.reason, several: false, configs: [] };
    group.several = group.several || group.reason !== row.reason;
    group.configs.push(row.config);
    groups.set(key, group);
  });
  return Array.from(groups.values()).sort((a, b) => b.configs.length - a.configs.length || text(a.status, b.status));
}

// ---- what a reader asks for -----------------------------------------------------------------------------------------

/// The properties that problems are chosen by, each by one of its values or "" for any.
const kFilters = [
  { key: "pass", title: "Pass" },
  { key: "dtype", title: "Dtype" },
  { key: "mask", title: "Mask" },
  { key: "head_dim", title: "D" },
];

/// wanted: {device, search, and a value or "" for each of kFilters}. Each word of `search` must occur.
function isWanted(p, wanted) {
  if (p.device !== wanted.device) return false;
  if (kFilters.some(({ key }) => wanted[key] && String(p[key]) !== wanted[key])) return false;
  return (wanted.search || "").toLowerCase().split(/\s+/).every((word) => p.searchable.includes(word));
}

/// Orders of problems: those without a value come last, ties as the document has them.
function ordersOf(peerTitles) {
  const rate = (p) => (p.best ? p.rate(p.best.time) : null);
  return [
    { key: "usual", title: "usual shapes first", value: oddity },
    { key: "shape", title: "shape", value: () => 0 },
    { key: "gain", title: "gain over the default", value: gainOf, descending: true },
    { key: "no-gain", title: "least gain over the default", value: gainOf },
    ...peerTitles.map((title) => ({
      key: "peer " + title, title: "slowest beside " + title,
      value: (p) => {
        const found = toPeer(p, peerOf(p, title));
        return found && found.value;
      },
    })),
    { key: "rate", title: "TFLOP/s", value: rate, descending: true },
    { key: "roofline", title: "furthest from its roofline", value: (p) => reachedBy(p.best) },
    { key: "time", title: "longest", value: (p) => p.best && p.best.time, descending: true },
    { key: "rows", title: "most rows", value: (p) => p.rows, descending: true },
  ];
}
function inOrderOf(problems, order) {
  const known = (p) => {
    const value = order.value(p);
    return value === null || value === undefined ? NaN : value;
  };
  return problems.map((p) => ({ p, value: known(p) })).sort((a, b) => {
    if (Number.isNaN(a.value) || Number.isNaN(b.value)) return Number.isNaN(a.value) - Number.isNaN(b.value) || a.p.index - b.p.index;
    return (order.descending ? b.value - a.value : a.value - b.value) || a.p.index - b.p.index;
  }).map(({ p }) => p);
}

/// Which problems are those that a reader looks for first: D = 128 and 64 before odd head dims, few features before
/// many, large before small. The least first.
function oddity(p) {
  const kUsualDims = [128, 64, 256, 192, 96];
  const dim = kUsualDims.indexOf(p.head_dim);
  const features = p.name.split(" D" + p.head_dim).slice(1).join("").split(" ").length;
  return (dim < 0 ? kUsualDims.length : dim) * 1e4 + features * 100 - Math.log2(1 + p.flops);
}

/// What a cell is sorted by: the number that its text begins with, where its column has numbers. Null for none.
function sortKey(shown, isNumber) {
  if (!isNumber) return shown === "" ? null : shown.toLowerCase();
  const found = /[−-]?[0-9][0-9,]*(\.[0-9]+)?/.exec(shown);
  return found ? Number(found[0].replace("−", "-").replace(/,/g, "")) : null;
}
/// Those without a key come last, ties as they were.
function sortedBy(rows, keyOf, descending) {
  const keyed = rows.map((row) => ({ row, key: keyOf(row) })).map(({ row, key }) => ({ row, key: key === undefined || key === false || Number.isNaN(key) ? null : key }));
  return keyed.sort((a, b) => {
    if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
    const order = typeof a.key === "number" ? a.key - b.key : a.key.localeCompare(b.key, "en", { numeric: true });
    return descending ? -order : order;
  }).map(({ row }) => row);
}

/// What is asked for, as the page's address has it behind "#", and back: "shapes?pass=forward&find=H16+S4096".
function fragmentOf(section, asked) {
  const query = new URLSearchParams();
  Object.keys(asked).forEach((key) => asked[key] !== "" && asked[key] !== null && query.append(key, asked[key]));
  return section + (String(query) ? "?" + query : "");
}
function askedIn(fragment) {
  const at = (fragment + "?").indexOf("?");
  return { section: fragment.slice(0, at), asked: Object.fromEntries(new URLSearchParams(fragment.slice(at + 1))) };
}

/// Whose search is shown when the chosen one is not among the wanted: a measured one with most rows.
function openedFirst(wanted) {
  const rank = (p) => [p.measured ? 1 : 0, p.trials ? 1 : 0, p.rows];
  const before = (a, b) => {
    const at = a.findIndex((value, i) => value !== b[i]);
    return at >= 0 && a[at] > b[at];
  };
  return wanted.reduce((best, p) => (best && !before(rank(p), rank(best)) ? best : p), null);
}

/// "wgmma in kernels of sm90 (forward, backward)": which families multiply by which of a device's instructions. Where a
/// device lacks a family's, no kernel of it runs.
function instructionWords(families, instructions) {
  return instructions.map((instruction) => {
    const byWord = new Map();
    families.filter((family) => family.instruction === instruction).forEach(({ word, pass }) => byWord.set(word, (byWord.get(word) || []).concat(pass)));
    return { instruction, words: Array.from(byWord, ([word, passes]) => word + " (" + passes.join(", ") + ")").join(", ") };
  }).filter(({ words }) => words).map(({ instruction, words }) => instruction + " in kernels of " + words).join("; ");
}

// ---- ceilings -------------------------------------------------------------------------------------------------------

/// The rates that no kernel of a device exceeds in one pass, highest first: {name, tflops} of each instruction that
/// multiplies, and of exponentials for each head dim where these bind before the fastest instruction does. An
/// exponential serves 4 D FLOP forward, 10 D backward.
function ceilingsOf(device, problems) {
  const products = Object.keys(device.matrix_tflops).map((name) => ({ name, tflops: device.matrix_tflops[name] }));
  const fastest = most(products.map((ceiling) => ceiling.tflops));
  const byDim = new Map(problems.filter((p) => p.flops_per_pair > 0).map((p) => [p.head_dim, p.flops_per_pair]));
  const exponentials = inOrder(Array.from(byDim.keys())).map((headDim) => ({
    name: "D = " + headDim, headDim, tflops: (byDim.get(headDim) * device.exponentials_per_us) / 1e6,
  })).filter((ceiling) => ceiling.tflops < fastest * 0.999);
  return { products: products.sort((a, b) => b.tflops - a.tflops), exponentials: exponentials.reverse(), fastest };
}
