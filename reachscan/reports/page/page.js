"use strict";
// Everything that comes from the target is set as text, never as markup.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const report = read("report");
const reasons = read("reasons"); // for doubt, in words
const BATCH = 100; // rows made at a time
const OPEN_LEVELS = 3; // of a tree

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

function showHead() {
  const { target, leaks, heap, memory, snapshot } = report;
  byId("title").append(target.name, " ", make("small", "", `pid ${target.pid}`));
  const summary = byId("summary");
  if (!leaks.allocations) {
    if (!report.warnings.some(({ code }) => code === "memory-outside-heap")) summary.className = "good";
    summary.append(`No leaks: all ${count(heap.allocations, "block")}, ${size(heap.bytes)}, can be reached.`);
  } else {
    const doubt = leaks.possible_allocations ? `, ${exact(leaks.possible_allocations)} of them only possibly` : "";
    summary.append(`${count(leaks.allocations, "block")} of heap memory that nothing points to any more${doubt}.`);
  }
  if (memory) {
    summary.append(` The heap is ${size(memory.heap_bytes)} of ${size(memory.bytes)} of private memory;`,
      " the rest was searched for pointers, not for leaks.");
  }
  fact("leaked", size(leaks.bytes), count(leaks.allocations, "block"));
  fact("direct", size(leaks.direct_bytes), count(leaks.direct_allocations, "lost block"));
  fact("indirect", size(leaks.bytes - leaks.direct_bytes),
    `${count(leaks.allocations - leaks.direct_allocations, "block")} below`);
  if (leaks.possible_allocations) {
    fact("only possibly", size(leaks.possible_bytes), count(leaks.possible_allocations, "block"));
  }
  for (const [what, amount] of [["known before", report.baseline?.known], ["suppressed", report.suppressed]]) {
    if (amount?.allocations) fact(what, size(amount.bytes), count(amount.allocations, "block"));
  }
  fact("allocated", size(heap.bytes), count(heap.allocations, "block"));
  fact("paused", time(snapshot.pause_us), `by method ${snapshot.method}`);
}

function fact(what, value, more) {
  byId("facts").append(make("div", "", make("dt", "", what), make("dd", "", value, make("small", "", more))));
}

function showWarnings() {
  const list = byId("warnings").querySelector("ul");
  for (const { code, message } of report.warnings) list.append(make("li", "", `${message} (${code})`));
  byId("warnings").hidden = !report.warnings.length;
}

// What was searched for pointers, not for leaks.
function restOf(memory) {
  const kinds = { anonymous: "anonymous", module: "data of modules", stack: "stacks", file: "mapped files" };
  const amounts = Object.entries(kinds).map(([kind, what]) => [memory[`${kind}_bytes`], what]);
  return amounts.filter(([bytes]) => bytes).map(([bytes, what]) => `${size(bytes)} ${what}`).join(", ");
}

function showCapture() {
  const { target, snapshot, memory } = report;
  const list = byId("capture").querySelector("dl");
  const phases = Object.entries(snapshot.phases_us).map(([name, us]) => `${name} ${time(us)}`);
  const rows = [
    ["program", target.exe],
    ["command", target.command.join(" ")],
    ["threads", exact(target.threads)],
    ["allocator", target.allocators.join(", ")],
    ["scanned at", snapshot.started],
    ["method", snapshot.reason ? `${snapshot.method}: ${snapshot.reason}` : snapshot.method],
    ["paused for", time(snapshot.pause_us)],
    ["steps", phases.join(", ")],
    ["rest of memory", memory && restOf(memory)],
    ["baseline", report.baseline?.source],
    ["complete", report.complete ? "yes" : "no: some memory was not seen, as the warnings say"],
  ];
  for (const [what, value] of rows) {
    if (value) list.append(make("dt", "", what), make("dd", "", value));
  }
}

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

function showSizes() {
  const columns = [];
  let next = report.leaks.sizes.length ? report.leaks.sizes[0].smallest : 0;
  for (const { smallest, largest, allocations, bytes } of report.leaks.sizes) {
    for (; next < smallest; next = next * 2 || 1) {
      columns.push({ label: classLabel(next, next * 2 - 1), value: 0, shown: "", title: "none" });
    }
    next = largest + 1;
    columns.push({
      label: classLabel(smallest, largest),
      value: bytes,
      shown: size(bytes),
      title: `${count(allocations, "block")} of ${exact(smallest)} to ${exact(largest)} bytes: ${size(bytes)}`,
    });
  }
  byId("sizes").querySelector(".chart").append(chart(columns));
  byId("sizes").hidden = !columns.length;
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

// The table of groups

const total = (group) => group.bytes + group.indirect_bytes;
const title = (group) =>
  group.type ?? ([group.shape, group.signature].filter(Boolean).join(": ") || "a block of no words");

const range = ({ sizes }) => [Math.min, Math.max].map((of) => of(...sizes.map((row) => row.size)));

function sizeOf(group) {
  // A row without a size sums up those that the report does not tell apart.
  return group.sizes.some((row) => row.size === null) ? "varies" : span(...range(group));
}

const COLUMNS = [
  { name: "bytes", classes: "number", key: total },
  { name: "direct", classes: "number", key: (group) => group.allocations },
  { name: "indirect", classes: "number", key: (group) => group.indirect_allocations },
  { name: "size", classes: "number", key: (group) => range(group)[1] },
  { name: "sure", classes: "", key: (group) => (group.confidence === "definite" ? 0 : 1) },
  { name: "what nothing points to", classes: "what", key: title },
];

const largest = report.groups.reduce((most, group) => Math.max(most, total(group)), 1);
const view = { sorted: null, falling: true, order: [], made: 0, searched: [] };

function searchText(group) {
  const names = (branches) => branches.flatMap((branch) => [branch.name ?? "", ...names(branch.below)]);
  const texts = [title(group), group.signature, group.key, group.confidence, group.reason ?? "", group.standing,
    group.example.address, ...names(group.tree)];
  return texts.join("\n").toLowerCase();
}

function showGroups() {
  if (!report.groups.length) return;
  view.searched = report.groups.map(searchText);
  const head = byId("groups").querySelector("thead tr");
  for (const column of COLUMNS) {
    const button = make("button", "", column.name);
    button.addEventListener("click", () => sortBy(column));
    column.cell = make("th", column.classes, button);
    column.cell.scope = "col";
    head.append(column.cell);
  }
  byId("search").addEventListener("input", refresh);
  const left = report.groups_total - report.groups.length;
  if (left) {
    const known = report.groups.reduce((sum, group) => sum + total(group), 0);
    byId("hidden").append(`${count(left, "more kind")} (${size(report.leaks.bytes - known)}) ` +
      `left out of this file; --limit ${report.groups_total} has them all`);
  }
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
  const wanted = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  view.order = report.groups
    .map((_, i) => i)
    .filter((i) => wanted.every((word) => view.searched[i].includes(word)));
  if (view.sorted) {
    const keys = report.groups.map(view.sorted.key);
    const sign = view.falling ? -1 : 1;
    const compare = (a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0);
    view.order.sort((a, b) => sign * compare(a, b) || a - b);
  }
  for (const column of COLUMNS) {
    const direction = view.falling ? "descending" : "ascending";
    column.cell.setAttribute("aria-sort", column === view.sorted ? direction : "none");
  }
  const sum = view.order.reduce((amount, i) => amount + total(report.groups[i]), 0);
  byId("shown").textContent =
    `${exact(view.order.length)} of ${count(report.groups_total, "kind")}, ${size(sum)}`;
  byId("groups").querySelector("tbody").replaceChildren();
  view.made = 0;
  makeRows();
}

// Rows are made as they come into sight: there may be thousands.
function makeRows() {
  const end = Math.min(view.made + BATCH, view.order.length);
  const rows = view.order.slice(view.made, end).map((i) => row(report.groups[i]));
  byId("groups").querySelector("tbody").append(...rows);
  view.made = end;
  // Observed anew, since it may still be in sight.
  atTheEnd.unobserve(byId("more"));
  if (end < view.order.length) atTheEnd.observe(byId("more"));
}

const atTheEnd = new IntersectionObserver((seen) => seen.some((entry) => entry.isIntersecting) && makeRows());

function row(group) {
  const share = make("i");
  share.style.width = `${(100 * total(group)) / largest}%`;
  const toggle = make("button", "toggle");
  toggle.setAttribute("aria-label", "details");
  toggle.setAttribute("aria-expanded", "false");
  const what = make("td", "what", toggle, make("b", group.type ? "" : "mono", title(group)));
  if (group.standing !== "counts") what.append(" ", make("span", "aside", group.standing));
  if (group.type && group.signature) what.append(make("div", "dim mono", group.signature));
  const sure = make("span", group.confidence === "possible" ? "doubt" : "dim", group.confidence);
  if (group.reason) sure.title = reasons[group.reason];
  const made = make("tr", "group",
    make("td", "number", size(total(group)), make("div", "share", share)),
    make("td", "number", exact(group.allocations)),
    make("td", "number", exact(group.indirect_allocations)),
    make("td", "number", sizeOf(group)),
    make("td", "", sure),
    what);
  made.addEventListener("click", (event) => {
    if (event.target !== toggle && String(document.getSelection())) return; // somebody marks text
    const open = made.classList.toggle("open");
    toggle.setAttribute("aria-expanded", String(open));
    if (open) made.after(detail(group));
    else made.nextElementSibling.remove();
  });
  return made;
}

function detail(group) {
  const { address, size: length, contents } = group.example;
  const about = make("div");
  if (group.reason) about.append(part("Only possibly leaked", reasons[group.reason]));
  if (group.rule) {
    const { rule, source, reason } = group.rule;
    about.append(part("Suppressed", make("code", "", rule), ` (${source})`, reason ? `: ${reason}` : ""));
  }
  if (group.before) {
    about.append(part("Grown", `from ${count(group.before.allocations, "block")}, ${size(group.before.bytes)}`));
  }
  if (group.sizes.length > 1) {
    about.append(part("Lost blocks by size in bytes", make("div", "chart", chartOfGroup(group.sizes))));
  }
  about.append(part("Example", make("code", "", address), ` (${count(length, "byte")})`));
  if (contents) about.append(make("pre", "", dump(contents)));
  about.append(part("Key, the same in every scan", make("code", "", group.key)));
  const parts = make("div", "parts", about);
  if (group.tree.length) {
    const head = make("div", "branch head", make("span"),
      ...["bytes", "blocks", "size"].map((name) => make("span", "number", name)));
    parts.prepend(part("What hangs below", make("div", "tree", head, tree(group.tree, OPEN_LEVELS))));
  }
  const cell = make("td", "", parts);
  cell.colSpan = COLUMNS.length;
  return make("tr", "detail", cell);
}

const part = (title, ...content) => make("div", "", make("h3", "", title), ...content);

function tree(branches, levels) {
  return make("ul", "", ...branches.map((branch) => {
    const line = make("div", "branch",
      make("span", branch.name === null ? "dim" : "", branch.name ?? `${count(branch.kinds, "more kind")}`),
      make("span", "number", size(branch.bytes)),
      make("span", "number", exact(branch.allocations)),
      make("span", "number dim", branch.name === null ? ""
        : span(branch.smallest, branch.largest)));
    if (!branch.below.length) return make("li", "", line);
    const folded = make("details", "", make("summary", "", line), tree(branch.below, levels - 1));
    folded.open = levels > 1;
    return make("li", "", folded);
  }));
}

function dump(hex) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 32) {
    const bytes = hex.slice(at, at + 32).match(/../g);
    const text = bytes.map((byte) => {
      const code = parseInt(byte, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : ".";
    });
    const offset = (at / 2).toString(16).padStart(8, "0");
    lines.push(`${offset}  ${bytes.join(" ").padEnd(47)}  |${text.join("")}|`);
  }
  return lines.join("\n");
}

showHead();
showWarnings();
showSizes();
showGroups();
showCapture();
