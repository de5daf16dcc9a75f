"use strict";
// Search in pages that are opened from a folder: a browser lets them neither start a worker nor fetch a file, as MkDocs' own script does, but it loads scripts.
// What is searched is loaded when the search is first used: lunr, and MkDocs' index as `search_index`.

let queryField = null, resultList = null;  // the page has them once it is read to its end

function loadScript(name) {
  return new Promise((loaded, failed) => {
    const script = document.createElement("script");
    script.src = base_url.replace(/\/$/, "") + "/search/" + name;
    script.onload = loaded;
    script.onerror = () => failed(new Error(script.src + " cannot be loaded"));
    document.head.appendChild(script);
  });
}

let prepared = null;
/// The index, and the sections by their places.
function prepare() {
  prepared = prepared || loadScript("lunr.js").then(() => loadScript("search_index.js")).then(() => {
    lunr.tokenizer.separator = new RegExp(search_index.config.separator);
    const index = lunr(function () {
      this.field("title", { boost: 10 });
      this.field("text");
      this.ref("location");
      search_index.docs.forEach((section) => this.add(section));
    });
    return { index, sections: new Map(search_index.docs.map((section) => [section.location, section])) };
  });
  return prepared;
}

/// Sections with any of the words, or with words that begin so; no letter of the text is a command of lunr's.
function sectionsWith({ index, sections }, text) {
  const found = index.query((query) => {
    lunr.tokenizer(text).map(String).filter((word) => word).forEach((word) => {
      query.term(word, { boost: 10 });
      query.term(word, { wildcard: lunr.Query.wildcard.TRAILING, usePipeline: false });
    });
  });
  return found.map(({ ref }) => sections.get(ref));
}

/// The text around the first of the words.
function excerpt(section, text) {
  const kLetters = 200, kBefore = 60;
  const word = text.toLowerCase().split(/\s+/).find((part) => part && section.text.toLowerCase().includes(part));
  const at = word ? section.text.toLowerCase().indexOf(word) : 0;
  const from = at > kBefore ? section.text.indexOf(" ", at - kBefore) + 1 : 0;
  const shown = section.text.slice(from, from + kLetters);
  return (from > 0 ? "… " : "") + shown + (from + kLetters < section.text.length ? " …" : "");
}

function show(found, text) {
  const add = (parent, tag, content) => {
    const made = parent.appendChild(document.createElement(tag));
    if (content) made.textContent = content;
    return made;
  };
  resultList.textContent = "";
  found.forEach((section) => {
    const article = add(resultList, "article");
    add(add(article, "h3"), "a", section.title).href = base_url.replace(/\/$/, "") + "/" + section.location;
    add(article, "p", excerpt(section, text));
  });
  if (!found.length && text) add(resultList, "p", resultList.getAttribute("data-no-results-text") || "No results found");
}

/// Resolves once the results are shown.
function search() {
  const text = queryField.value.trim();
  return prepare().then((made) => {
    if (queryField.value.trim() === text) show(text ? sectionsWith(made, text) : [], text);
  }, (error) => show([], error.message));
}

document.addEventListener("DOMContentLoaded", () => {
  queryField = document.getElementById("mkdocs-search-query");
  resultList = document.getElementById("mkdocs-search-results");
  queryField.addEventListener("input", search);
  queryField.form.addEventListener("submit", (event) => event.preventDefault());  // which would load the page again
  const asked = new URLSearchParams(window.location.search).get("q");
  if (asked) {
    queryField.value = asked;
    search();
  }
});
