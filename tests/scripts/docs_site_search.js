"use strict";
// The scripts of a page of the site as a browser runs them that lets a page from disk load scripts and nothing else: no worker, no fetch, no XMLHttpRequest.
// node docs_site_search.js SITE
const assert = require("assert");
const fs = require("fs");
const path = require("path");
const vm = require("vm");
const site = process.argv[2];

class Node {
  constructor(tag) {
    Object.assign(this, { tag, form: { addEventListener() {} }, children: [], listeners: {}, attributes: {}, value: "", text: "" });
  }
  set textContent(text) {
    this.text = text;
    this.children = [];
  }
  get textContent() {
    return this.text + this.children.map((child) => child.textContent).join(" ");
  }
  appendChild(child) {
    this.children.push(child);
    if (child.tag === "script") run(child.src).then(child.onload, child.onerror);
    return child;
  }
  addEventListener(kind, listener) {
    this.listeners[kind] = listener;
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
  }
  getAttribute(name) {
    return this.attributes[name] || null;
  }
}

const named = {}, whenRead = [];
let read = false;
const document = {
  addEventListener: (kind, listener) => kind === "DOMContentLoaded" && whenRead.push(listener),
  head: new Node("head"),
  documentElement: new Node("html"),
  createElement: (tag) => new Node(tag),
  getElementById: (id) => (read && id.startsWith("mkdocs-search") ? (named[id] = named[id] || new Node("div")) : null),
};
const window = { location: { search: "" }, matchMedia: () => ({ matches: true, addEventListener() {} }) };
const context = vm.createContext({ document, window, base_url: "..", URLSearchParams, console });
const run = async (source) => vm.runInContext(fs.readFileSync(path.join(site, "docs", source), "utf8"), context, { filename: source });
const all = (node, tag) => node.children.flatMap((child) => (child.tag === tag ? [child] : []).concat(all(child, tag)));

(async () => {
  await run("../js/darkmode.js");
  assert.strictEqual(document.documentElement.getAttribute("data-bs-theme"), "dark");
  await run("../search/main.js");
  read = true;
  whenRead.forEach((listener) => listener());
  const field = named["mkdocs-search-query"], results = named["mkdocs-search-results"];
  const found = async (text) => {
    field.value = text;
    await field.listeners.input();
    return all(results, "a").map((link) => link.href);
  };
  const packs = await found("packs cold start");
  assert(packs[0].startsWith("../docs/packs.html"), packs[0]);
  packs.forEach((href) => assert(fs.existsSync(path.join(site, "docs", href.split("#")[0])), href));
  assert((await found("ATTUNE_FROZ")).some((href) => href.includes("docs/packs.html")));
  assert(/ATTUNE_FROZEN/.test(results.textContent));
  // What lunr would take for commands.
  for (const text of ["attune::", "title:", "+-~^*", "a^b", "~"]) await found(text);
  assert.deepStrictEqual(await found("qqzzxx"), []);
  assert(/No results/.test(results.textContent));
  assert.deepStrictEqual(await found("  "), []);
  console.log("search works from disk");
})().catch((error) => {
  console.log(error.stack);
  process.exitCode = 1;
});
