"use strict";
// "Provenance": where the rows come from, by device, toolchain and protocol; the devices; other libraries' files.

function drawProvenance() {
  const groups = new Map();
  problems.forEach((p) => {
    (p.trials || [p.best, p.default].filter((row) => row)).forEach((row) => {
      const key = p.device + " " + row.provenance;
      if (!groups.has(key)) groups.set(key, { device: deviceOf(p), from: row.provenanceOf, rows: [] });
      groups.get(key).rows.push(row);
    });
  });
  const range = (values) => {
    const known = values.filter((value) => value > 0);
    if (!known.length) return "";
    return least(known) === most(known) ? String(known[0]) : least(known) + " – " + most(known);
  };
  const stamps = (rows) => inOrder(rows.map((row) => row.created_at));
  table(byId("provenance-table"), [
    { title: "device", value: (g) => g.device.name + ", " + g.device.sm_count + " SMs", className: "nowrap" },
    { title: "driver", value: (g) => g.from.driver },
    { title: "compiler", value: (g) => g.from.compiler },
    { title: "sources", value: (g) => whole(distinct(g.rows.map((row) => row.source_hash)).length), number: true },
    { title: "Attune", value: (g) => g.from.attune_version },
    { title: "protocol", value: (g) => g.from.protocol, className: "text" },
    { title: "rigor", value: (g) => kRigors.filter((rigor) => g.rows.some((row) => row.rigor === rigor)).join(", ") },
    { title: "rows", value: (g) => whole(g.rows.length), number: true },
    { title: "raced", value: (g) => whole(g.rows.filter((row) => row.race).length), number: true },
    { title: "samples a row", value: (g) => range(g.rows.map((row) => row.samples)), number: true },
    { title: "SM clock MHz", value: (g) => range([].concat(...g.rows.map((row) => [row.clock_low, row.clock_high]))), number: true },
    { title: "p80 / p20, median", value: (g) => {
      const timed = g.rows.filter((row) => row.median_us > 0 && row.p20_us > 0);
      return timed.length ? median(timed.map((row) => row.p80_us / row.p20_us)).toFixed(4) : "";
    }, number: true },
    { title: "from, UTC", value: (g) => day(stamps(g.rows)[0]), className: "nowrap" },
    { title: "to", value: (g) => day(stamps(g.rows)[g.rows.length - 1]), className: "nowrap" },
  ], Array.from(groups.values()).sort((a, b) => b.rows.length - a.rows.length), { first: 10 });
  const instructions = distinct([].concat(...data.devices.map((d) => Object.keys(d.matrix_tflops || {}))));
  table(byId("devices-table"), [
    { title: "device", value: (d) => d.name },
    { title: "SMs", value: (d) => String(d.sm_count), number: true },
    { title: "boost clock MHz", value: (d) => d.known && whole(d.clock_mhz), number: true },
    ...instructions.map((name) => ({ title: name + " TFLOP/s", value: (d) => d.known && d.matrix_tflops[name] && number(d.matrix_tflops[name]), number: true })),
    { title: "exponentials per ns", value: (d) => d.known && number(d.exponentials_per_us / 1e3), number: true },
    { title: "device memory GB/s", value: (d) => d.known && number(d.memory_gbps), number: true },
    { title: "note", value: (d) => (d.known ? "ceilings from its data sheet and the units' measured rates, at the boost clock" : "not known to this version: no ceilings, no default config") },
  ], data.devices);
  const node = clear(byId("peer-files"));
  data.peer_files.forEach((file) => {
    const versions = Object.keys(file.versions).map((what) => what + " " + file.versions[what]).join(", ");
    node.appendChild(element("p", "note", "Other libraries: " + file.file + " (" + file.gpu + (versions ? "; " + versions : "") + "), " + file.shown + " of " +
      plural(file.rows, "row") + " shown. " + file.protocol));
  });
}
