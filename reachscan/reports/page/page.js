"use strict";
// Everything that comes from the target is set as text, never as markup.

// Nor may it hide or reverse what is beside it: control characters, and those that set the direction of
// text, are written out, as in reports as text.
const ESCAPES = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
function writtenOut(letter) {
  const hex = letter.codePointAt(0).toString(16);
  const [sign, digits] = hex.length <= 2 ? ["x", 2] : hex.length <= 4 ? ["u", 4] : ["U", 8];
  return ESCAPES[letter] ?? `\\${sign}${hex.padStart(digits, "0")}`;
}
const printable = (_, value) =>
  typeof value === "string" ? value.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, writtenOut) : value;

const read = (id) => JSON.parse(document.getElementById(id).textContent, printable);
const report = read("report");
const BATCH = 100; // rows made at a time

const byId = (id) => document.getElementById(id);

function make(tag, classes, ...children) {
  const element = document.createElement(tag);
  if (classes) element.className = classes;
  element.append(...children);
  return element;
}

const exact = (number) => number.toLocaleString("en-US");

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= (unit ? 1023.95 : 1024) && unit + 1 < units.length) {
    bytes /= 1024;
    unit += 1;
  }
  return `${unit ? bytes.toFixed(1) : bytes} ${units[unit]}`;
}

function time(microseconds) {
  return microseconds >= 1e5
    ? `${(microseconds / 1e6).toFixed(2)} s`
    : `${(microseconds / 1e3).toFixed(1)} ms`;
}

const span = (least, most) => (least === most ? exact(least) : `${exact(least)}\u2013${exact(most)}`);

const count = (number, what) => `${exact(number)} ${what}${number === 1 ? "" : "s"}`;

// The head of the page

function fact(what, value, more) {
  byId("facts").append(make("div", "", make("dt", "", what), make("dd", "", value, make("small", "", more))));
}

function showWarnings() {
  const list = byId("warnings").querySelector("ul");
  for (const { code, message } of report.warnings) list.append(make("li", "", `${message} (${code})`));
  byId("warnings").hidden = !report.warnings.length;
}

// `more` are rows that only some reports have.
function showCapture(more = []) {
  const { target, snapshot } = report;
  const phases = Object.entries(snapshot.phases_us).map(([name, us]) => `${name} ${time(us)}`);
  showFacts([
    ["host", hostOf(report)],
    ["program", target.exe],
    ["command", target.command.join(" ")],
    ["threads", exact(target.threads)],
    ["allocator", target.allocators.join(", ")],
    ["scanned at", snapshot.started],
    ["method", snapshot.reason ? `${snapshot.method}: ${snapshot.reason}` : snapshot.method],
    ["paused for", time(snapshot.pause_us)],
    ["steps", phases.join(", ")],
    ...more,
    ["reachscan", report.reachscan],
    ["complete", report.complete ? "yes" : "no: some memory was not seen, as the warnings say"],
  ]);
}

const hostOf = ({ host }) => host && (host.boot_id ? `${host.name}, boot ${host.boot_id}` : host.name);

function showFacts(rows) {
  const list = byId("capture").querySelector("dl");
  for (const [what, value] of rows) {
    if (value) list.append(make("dt", "", what), make("dd", "", value));
  }
}

// What the words of a page mean; `more` come first.
function showLegend(more, words) {
  const list = byId("legend").querySelector("dl");
  for (const [what, value] of [...more, ...words]) list.append(make("dt", "mono", what), make("dd", "", value));
}

const WORDS = [
  ["lib.so+name", "a pointer to that function, constant or variable"],
  ["lib.so", "a pointer into the data of that module"],
  ["heap", "a pointer to heap memory"],
  ["link", "a pointer to a neighbour in a list or tree, or null"],
  ["text, int, zero, data", "printable characters, a small number, zero, anything else"],
  ["\u00b7", "differs among the blocks of this kind"],
  ["perhaps", "structs of that size whose pointers lie where the block has some"],
  ["key", "what diff, watch and suppressions call this kind, in every scan"],
];

// Charts

function drawn(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.append(text);
  return element;
}

// A column for each {label, value, shown, title}.
function chart(columns) {
  const [width, height, top, bottom] = [68, 110, 18, 20];
  const highest = Math.max(1, ...columns.map((column) => column.value));
  const base = top + height;
  const all = drawn("svg", { width: columns.length * width, height: base + bottom, role: "img" });
  columns.forEach((column, i) => {
    const tall = column.value ? Math.max(1, (column.value / highest) * height) : 0;
    const [left, middle] = [i * width, i * width + width / 2];
    const group = drawn("g", {});
    group.append(
      drawn("title", {}, column.title),
      drawn("rect", { x: left + 8, y: base - tall, width: width - 16, height: tall, rx: 2 }),
      drawn("text", { x: middle, y: base - tall - 5 }, column.shown),
      drawn("text", { x: middle, y: base + 14 }, column.label));
    all.append(group);
  });
  all.append(drawn("line", { x1: 0, x2: columns.length * width, y1: base + 0.5, y2: base + 0.5 }));
  return all;
}

// What a size class begins with and ends with, short enough to stand below a column.
function classLabel(smallest, largest) {
  const units = ["", " Ki", " Mi", " Gi", " Ti"];
  const unit = Math.max(0, Math.floor(Math.log2(smallest || 1) / 10));
  if (!unit) return smallest === largest ? exact(smallest) : `${smallest}\u2013${largest}`;
  return `${smallest / 1024 ** unit}\u2013${(largest + 1) / 1024 ** unit}${units[unit]}`;
}

function chartOfGroup(sizes) {
  const order = (row) => (row.size === null ? Infinity : row.size);
  return chart([...sizes].sort((a, b) => order(a) - order(b)).map((row) => ({
    label: row.size === null ? "other" : exact(row.size),
    value: row.allocations,
    shown: exact(row.allocations),
    title: `${count(row.allocations, "block")}, ${size(row.bytes)}`,
  })));
}

// Groups of blocks

const title = (group) =>
  group.type ?? ([...new Set([group.shape, group.signature])].filter(Boolean).join(": ") || "blocks that nothing more is known of");

const range = ({ sizes }) => [Math.min, Math.max].map((of) => of(...sizes.map((row) => row.size)));

function sizeOf(group) {
  // A row without a size sums up those that the report does not tell apart.
  return group.sizes.some((row) => row.size === null) ? "varies" : span(...range(group));
}

const candidatesOf = (group) =>
  group.candidates?.length ? [make("div", "dim", `perhaps ${group.candidates.join(", ")}`)] : [];

// What is known of an example, and what the kind is called elsewhere.
function exampleOf(group) {
  const { address, size: length, contents } = group.example;
  const parts = [part("Example", make("code", "", address), ` (${count(length, "byte")})`)];
  if (contents) parts.push(make("pre", "", dump(contents)));
  parts.push(part("Key, the same in every scan", make("code", "", group.key)));
  return parts;
}

// The stack that allocated a group, if it is known: the function that asked for memory first.
function stackOf(group) {
  const frames = report.stacks?.[group.stack];
  if (!frames) return [];
  const names = frames.map(({ function: name, module, offset, pc, file, line, inlined }) => {
    const where = file ? ` ${file}${line ? `:${line}` : ""}` : module ? ` ${module.split("/").pop()}` : "";
    const what = name ?? (module ? `${module.split("/").pop()}+0x${offset.toString(16)}` : pc);
    return make("li", "", make("code", "", what), make("span", "dim", name ? where : "", inlined ? ", inlined" : ""));
  });
  const who = group.threads.map(({ name, tid, allocations }) => `${name || `thread ${tid}`} (${exact(allocations)})`);
  const calls = make("ol", "calls", ...names);
  return [part(who.length ? `Allocated by ${who.join(", ")}` : "Allocated by", calls)];
}

const callsOf = (group) => stackOf(group).map((calls) => calls.textContent);

// The table. `table` says what is in it: `rows`; `kinds`, how many there are in all; `columns`, each with
// `name`, `classes`, `key` to sort by and `cell`, what it shows; `weight` of a row, in bytes; `texts` to
// search; `detail`, what a row opens to; `hidden`, what of the rows that were left out is to be said.

const view = { table: null, largest: 1, sorted: null, falling: true, order: [], made: 0, searched: [] };

function showTable(table) {
  if (!table.rows.length) return;
  view.table = table;
  view.searched = table.rows.map((one) => table.texts(one).join("\n").toLowerCase());
  view.largest = table.rows.reduce((most, one) => Math.max(most, Math.abs(table.weight(one))), 1);
  const head = byId("groups").querySelector("thead tr");
  for (const column of table.columns) {
    const button = make("button", "", column.name);
    button.addEventListener("click", () => sortBy(column));
    column.head = make("th", column.classes, button);
    column.head.scope = "col";
    head.append(column.head);
  }
  byId("search").addEventListener("input", refresh);
  byId("hidden").append(table.hidden);
  byId("groups").hidden = false;
  refresh();
}

function sortBy(column) {
  // Numbers are looked for from above, names from the beginning. The third click undoes it.
  const first = column.classes === "number";
  if (view.sorted !== column) [view.sorted, view.falling] = [column, first];
  else if (view.falling === first) view.falling = !first;
  else view.sorted = null;
  refresh();
}

function refresh() {
  const { rows, kinds, columns, weight } = view.table;
  const wanted = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  view.order = rows
    .map((_, i) => i)
    .filter((i) => wanted.every((word) => view.searched[i].includes(word)));
  if (view.sorted) {
    const keys = rows.map(view.sorted.key);
    const sign = view.falling ? -1 : 1;
    const compare = (a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0);
    view.order.sort((a, b) => sign * compare(a, b) || a - b);
  }
  for (const column of columns) {
    const direction = view.falling ? "descending" : "ascending";
    column.head.setAttribute("aria-sort", column === view.sorted ? direction : "none");
  }
  const sum = view.order.reduce((amount, i) => amount + weight(rows[i]), 0);
  byId("shown").textContent =
    `${exact(view.order.length)} of ${count(kinds, "kind")}, ${size(sum)}`;
  byId("groups").querySelector("tbody").replaceChildren();
  view.made = 0;
  makeRows();
}

// Rows are made as they come into sight: there may be thousands.
function makeRows() {
  const end = Math.min(view.made + BATCH, view.order.length);
  const rows = view.order.slice(view.made, end).map((i) => row(view.table.rows[i]));
  byId("groups").querySelector("tbody").append(...rows);
  view.made = end;
  // Observed anew, since it may still be in sight.
  atTheEnd.unobserve(byId("more"));
  if (end < view.order.length) atTheEnd.observe(byId("more"));
}

const atTheEnd = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && makeRows());

function bar(one) {
  const share = make("i");
  share.style.width = `${(100 * Math.abs(view.table.weight(one))) / view.largest}%`;
  return make("div", "share", share);
}

function row(one) {
  const { columns, detail } = view.table;
  const toggle = make("button", "toggle");
  toggle.setAttribute("aria-label", "details");
  toggle.setAttribute("aria-expanded", "false");
  const made = make("tr", "group", ...columns.map((column) => make("td", column.classes, ...column.cell(one))));
  made.lastElementChild.prepend(toggle);
  made.addEventListener("click", (event) => {
    if (event.target !== toggle && String(document.getSelection())) return; // somebody marks text
    const open = made.classList.toggle("open");
    toggle.setAttribute("aria-expanded", String(open));
    if (!open) return made.nextElementSibling.remove();
    const cell = make("td", "", make("div", "parts", ...detail(one)));
    cell.colSpan = columns.length;
    made.after(make("tr", "detail", cell));
  });
  return made;
}

const part = (title, ...content) => make("div", "", make("h3", "", title), ...content);

function dump(hex) {
  // Rows that a small window shows as a whole.
  const width = matchMedia("(max-width: 46rem)").matches ? 8 : 16;
  const lines = [];
  for (let at = 0; at < hex.length; at += 2 * width) {
    const bytes = hex.slice(at, at + 2 * width).match(/../g);
    const text = bytes.map((byte) => {
      const code = parseInt(byte, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : ".";
    });
    const offset = (at / 2).toString(16).padStart(4, "0");
    lines.push(`${offset}  ${bytes.join(" ").padEnd(3 * width - 1)}  |${text.join("")}|`);
  }
  return lines.join("\n");
}
