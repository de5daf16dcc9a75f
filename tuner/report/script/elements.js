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

const kRowsAtOnce = 40;  // that a table draws; more as the reader scrolls to their end

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

/// columns: {title, value(row) -> text or node, number, by(row), className}; one without any value is left out. A head
/// sorts by its column, by `by` or by what is shown, and keeps its place while rows are scrolled.
function table(node, columns, rows, options) {
  const settings = Object.assign({ chosen: () => false }, options);
  clear(node).classList.toggle("tall", rows.length > kRowsAtOnce / 2);
  node.onscroll = null;
  if (!rows.length) return;
  const empty = (value) => value === undefined || value === null || value === "" || value === false;
  const shown = columns.filter((column) => rows.some((row) => !empty(column.value(row))));
  const made = element("table");
  const head = made.appendChild(element("thead")).appendChild(element("tr"));
  const body = made.appendChild(element("tbody"));
  let ordered = rows, drawn = 0;
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
  const addMore = () => {
    ordered.slice(drawn, drawn + kRowsAtOnce).forEach(add);
    drawn = Math.min(drawn + kRowsAtOnce, ordered.length);
  };
  const shownText = (value) => (value instanceof Node ? value.textContent : empty(value) ? "" : String(value));
  const sort = (column, descending) => {
    const key = column.by || ((row) => sortKey(shownText(column.value(row)), column.number));
    ordered = descending === null ? rows : sortedBy(rows, key, descending);
    clear(body);
    drawn = node.scrollTop = 0;
    addMore();
  };
  shown.forEach((column) => {
    const cell = head.appendChild(element("th", column.number ? "number" : column.className));
    cell.appendChild(button(column.title, () => {
      // Numbers the greatest first; then the other way round; then as they were.
      const first = column.number ? "descending" : "ascending", second = column.number ? "ascending" : "descending";
      const before = cell.getAttribute("aria-sort");
      const now = before === null ? first : before === first ? second : null;
      Array.from(head.children).forEach((other) => other.removeAttribute("aria-sort"));
      if (now) cell.setAttribute("aria-sort", now);
      sort(column, now && now === "descending");
    }));
  });
  addMore();
  node.onscroll = () => {
    while (drawn < ordered.length && node.scrollTop + node.clientHeight > node.scrollHeight - 400) addMore();
  };
  node.scrollTop = 0;
  node.appendChild(made);
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
