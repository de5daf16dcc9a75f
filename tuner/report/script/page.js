"use strict";
// The page as a whole: its header, what the reader asks for, and what is drawn again when that changes.

function drawHeader() {
  byId("subtitle").textContent = [
    data.database, plural(problems.length, "problem"), plural(sum(problems.map((p) => p.rows)), "row"),
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
  const beyond = sum(problems.map((p) => (p.trials || [p.best, p.default]).filter((row) => reachedBy(row) > 1).length));
  if (beyond) {
    warn(plural(beyond, "row") + (beyond === 1 ? " is" : " are") + " faster than the roofline of " + (beyond === 1 ? "its" : "their") +
      " kernel, which no measurement can be: changed since, or of another device than " + (beyond === 1 ? "it says." : "they say."));
  }
  const unreadable = sum(problems.map((p) => p.unreadable));
  if (unreadable) {
    warn(plural(unreadable, "row") + " cannot be read by Attune " + data.attune_version + " (a newer one wrote them, or they were changed: `attune db doctor` says more) and " + (unreadable === 1 ? "is" : "are") + " not shown.");
  }
}

/// The filters that can tell shapes of the device apart; those with one value are not offered.
function fillFilters() {
  const ofDevice = problems.filter((p) => p.device === view.wanted.device);
  kFilters.forEach(({ key }) => {
    const values = inOrder(distinct(ofDevice.map((p) => p[key])));
    if (!values.some((value) => String(value) === view.wanted[key])) view.wanted[key] = "";
    fillSelect(byId("filter-" + key), [{ value: "", title: "all" }].concat(values.map((value) => ({ value, title: String(value) }))), view.wanted[key]);
    byId("filter-" + key).parentNode.hidden = values.length < 2;
  });
  fillSelect(byId("order"), orders.map(({ key, title }) => ({ value: key, title })), view.order.key);
  byId("choices").hidden = ofDevice.length < 2 && data.devices.length < 2;
}

/// Puts what is asked for into the address, so that it can be sent and opened again.
function keepInAddress() {
  const { wanted } = view;
  const asked = { device: wanted.device === problems[data.selected].device ? "" : deviceTitle(data.devices[wanted.device]) };
  kFilters.forEach(({ key }) => (asked[key] = wanted[key]));
  Object.assign(asked, { find: wanted.search, order: view.order === orders[0] ? "" : view.order.key, problem: view.named ? view.problem.name : "" });
  const fragment = "#" + fragmentOf(view.section, asked);
  if (fragment !== location.hash && (fragment !== "#" || location.hash)) history.replaceState(null, "", fragment);
}

/// And takes it from there; what the page does not know counts as not asked for.
function takeFromAddress() {
  const { section, asked } = askedIn(location.hash.slice(1));
  view.section = byId(section) ? section : "";
  const device = data.devices.findIndex((d) => deviceTitle(d) === asked.device);
  view.wanted.device = device >= 0 ? device : problems[data.selected].device;
  kFilters.forEach(({ key }) => (view.wanted[key] = asked[key] || ""));
  view.wanted.search = asked.find || "";
  view.order = orders.find(({ key }) => key === asked.order) || orders[0];
  const problem = problems.find((p) => p.device === view.wanted.device && p.name === asked.problem);
  view.named = Boolean(problem);
  view.problem = problem || problems[data.selected];
  byId("find").value = view.wanted.search;
  byId("device").value = view.wanted.device;
  fillFilters();
  drawShown();
  if (view.section) goTo(view.section);
}

function goTo(section) {
  view.section = section;
  byId(section).scrollIntoView();
  keepInAddress();
}

function drawSearch() {
  drawFacts();
  if (view.problem.trials) {
    drawProgress();
    drawFields();
    drawConfigs();
  }
  drawModel();
}

function fillProblems() {
  const shown = view.shown.includes(view.problem) ? view.shown : [view.problem].concat(view.shown);
  fillSelect(byId("problem"), shown.map((p) => (
    { value: p.index, title: p.name + " (" + plural(p.rows, "row") + (p.trials ? "" : ", left out") + ")" })), view.problem.index);
}

/// After a change of what is asked for.
function drawShown() {
  const ofDevice = problems.filter((p) => p.device === view.wanted.device);
  view.shown = inOrderOf(ofDevice.filter((p) => isWanted(p, view.wanted)), view.order);
  if (!view.shown.includes(view.problem)) {
    view.problem = openedFirst(view.shown) || (view.problem.device === view.wanted.device ? view.problem : openedFirst(ofDevice));
    view.named = false;
  }
  byId("shown-count").textContent = view.shown.length === ofDevice.length ? plural(ofDevice.length, "shape") : whole(view.shown.length) + " of " + plural(ofDevice.length, "shape");
  byId("all").hidden = view.shown.length === ofDevice.length;
  drawTiles();
  drawShapes(false);
  drawShapesTable();
  drawRoofline();
  fillProblems();
  drawSearch();
  keepInAddress();
}

function choose(p) {
  view.problem = p;
  view.named = true;
  fillProblems();
  drawSearch();
  keepInAddress();
}

function listen() {
  byId("device").addEventListener("change", (event) => {
    view.wanted.device = Number(event.target.value);
    fillFilters();
    drawShown();
  });
  kFilters.forEach(({ key }) => byId("filter-" + key).addEventListener("change", (event) => {
    view.wanted[key] = event.target.value;
    drawShown();
  }));
  byId("order").addEventListener("change", (event) => {
    view.order = orders.find(({ key }) => key === event.target.value);
    drawShown();
  });
  let typing = 0;
  byId("find").addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      view.wanted.search = event.target.value;
      drawShown();
    }, 120);
  });
  byId("all").addEventListener("click", () => {
    Object.assign(view.wanted, { search: "", pass: "", dtype: "", mask: "", head_dim: "" });
    byId("find").value = "";
    fillFilters();
    drawShown();
  });
  byId("problem").addEventListener("change", (event) => choose(problems[Number(event.target.value)]));
  document.querySelectorAll("nav a").forEach((link) => link.addEventListener("click", (event) => {
    event.preventDefault();
    goTo(link.getAttribute("href").slice(1));
  }));
  window.addEventListener("hashchange", takeFromAddress);
  // A tooltip goes with its mark.
  ["scroll", "resize"].forEach((kind) => window.addEventListener(kind, hideTooltip, { passive: true }));
  document.addEventListener("click", (event) => event.target.tagName !== "CANVAS" && hideTooltip());

  const themes = ["system", "light", "dark"];
  const root = document.documentElement;
  byId("theme").addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "system") + 1) % themes.length];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    byId("theme").textContent = "theme: " + next;
    recolor();
  });
  // Canvases do not follow the style by themselves.
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
  let before;
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    recolor();
    drawAllNow();
  });
  window.addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    recolor();
  });
  let narrow = isNarrow(root.clientWidth), waitingForRest = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waitingForRest);
    waitingForRest = setTimeout(() => {
      if (isNarrow(root.clientWidth) !== narrow) drawShown();
      narrow = isNarrow(root.clientWidth);
    }, 150);
  });
}

Chart.defaults.font.family = kFont;
fillSelect(byId("device"), data.devices.map((d, i) => ({ value: i, title: deviceTitle(d) })), view.wanted.device);
byId("device").parentNode.hidden = data.devices.length < 2;
drawHeader();
listen();
takeFromAddress();
drawProvenance();
