"use strict";
// Elements of the page: text that comes from a database is only ever an element's textContent.

const byId = (id) => document.getElementById(id);

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
function button(title, press) {
  const made = element("button", "", title);
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}

/// What follows `node` and lets the reader have the rest; gone when there is none, or once it was pressed.
function offerRest(node, title, press) {
  const old = node.nextElementSibling;
  if (old && old.classList.contains("more")) old.remove();
  if (!title) return;
  const more = element("p", "more");
  more.appendChild(button(title, () => {
    more.remove();
    press();
  }));
  node.parentNode.insertBefore(more, node.nextSibling);
}

/// columns: {title, value(row) -> text or node, number, className}; one without any value is left out.
function table(node, columns, rows, options) {
  const settings = Object.assign({ first: 25, chosen: () => false }, options);
  clear(node).classList.remove("tall");
  offerRest(node, null);
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
    offerRest(node, "show all " + whole(rows.length), () => {
      rows.slice(settings.first).forEach(add);
      node.classList.add("tall");
    });
  }
}

/// Long text behind its beginning.
function folded(long, shown) {
  if (long.length <= shown) return long;
  const made = element("details", "folded");
  made.appendChild(element("summary", "", long.slice(0, shown) + " …"));
  made.appendChild(element("span", "", long));
  return made;
}

/// options: {value, title}; keeps the chosen value.
function fillSelect(select, options, chosen) {
  clear(select);
  options.forEach(({ value, title }) => {
    const option = select.appendChild(element("option", "", title));
    option.value = value;
    option.selected = String(value) === String(chosen);
  });
}

const tooltip = byId("tooltip");
/// Lines beside a place of the page, the first of them as a head.
function showTooltip(left, top, lines) {
  clear(tooltip);
  lines.filter((line) => line).forEach((line, i) => tooltip.appendChild(element("div", i === 0 ? "head" : "", line)));
  tooltip.hidden = false;
  const box = tooltip.getBoundingClientRect();
  const room = document.documentElement.clientWidth;
  const above = top + 18 + box.height > window.scrollY + window.innerHeight;
  tooltip.style.left = Math.max(8, Math.min(left + 14, room - box.width - 8)) + "px";
  tooltip.style.top = Math.max(window.scrollY + 4, above ? top - box.height - 12 : top + 18) + "px";
}
const hideTooltip = () => (tooltip.hidden = true);
