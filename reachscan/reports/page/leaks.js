// The page on leaks.

const reasons = read("reasons"); // for doubt, in words
const OPEN_LEVELS = 3; // of a tree

const warned = (...codes) => report.warnings.some(({ code }) => codes.includes(code));

function noLeaks(heap) {
  const blocks = `${count(heap.allocations, "block")}, ${size(heap.bytes)}`;
  if (warned("incomplete-records")) return `There are new leaks, but none was recorded, among ${blocks}.`;
  const { confirmation, collectible } = report;
  const leftOut = [confirmation?.vanished, confirmation?.recent, collectible].some((amount) => amount?.allocations);
  return leftOut || warned("not-recorded") ? `No leaks that count among ${blocks}.`
    : `No leaks: all ${blocks}, can be reached.`;
}

function showHead() {
  const { target, leaks, heap, memory, snapshot } = report;
  byId("title").append(target.name, " ", make("small", "", `pid ${target.pid}`));
  const summary = byId("summary");
  if (!leaks.allocations) {
    if (!warned("memory-outside-heap", "incomplete-records")) summary.className = "good";
    summary.append(noLeaks(heap));
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

// What was searched for pointers, not for leaks.
function restOf(memory) {
  const kinds = { anonymous: "anonymous", module: "data of modules", stack: "stacks", file: "mapped files" };
  const amounts = Object.entries(kinds).map(([kind, what]) => [memory[`${kind}_bytes`], what]);
  return amounts.filter(([bytes]) => bytes).map(([bytes, what]) => `${size(bytes)} ${what}`).join(", ");
}

const amountOf = (amount, what) =>
  amount?.allocations ? `${count(amount.allocations, "block")} (${size(amount.bytes)}) ${what}` : "";

// How often the process was scanned, and what only some scans found.
function ofSeveralScans({ confirmation, moments }) {
  const { scans, every_us: every } = confirmation ?? moments ?? { scans: 1 };
  if (scans === 1) return "";
  const apart = `${exact(scans)} scans, ${time(every)} apart`;
  const parts = confirmation
    ? [`only what was lost in each of ${apart}`, amountOf(confirmation.vanished, "gone again, left out"),
      amountOf(confirmation.recent, "too recent to be sure of, left out")]
    : [`what was lost in any of ${apart}`, amountOf(moments.hidden, "that words hide from the last one"),
      amountOf(moments.withdrawn, "left out or in doubt, as an earlier scan was wrong about their use")];
  return parts.filter(Boolean).join("; ");
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

const total = (group) => group.bytes + group.indirect_bytes;

const COLUMNS = [
  { name: "bytes", classes: "number", key: total, cell: (group) => [size(total(group)), bar(group)] },
  { name: "direct", classes: "number", key: (group) => group.allocations, cell: (group) => [exact(group.allocations)] },
  {
    name: "indirect", classes: "number", key: (group) => group.indirect_allocations,
    cell: (group) => [exact(group.indirect_allocations)],
  },
  { name: "size", classes: "number", key: (group) => range(group)[1], cell: (group) => [sizeOf(group)] },
  { name: "sure", classes: "", key: (group) => (group.confidence === "definite" ? 0 : 1), cell: (group) => [sureOf(group)] },
  { name: "what nothing points to", classes: "what", key: title, cell: whatOf },
];

function sureOf(group) {
  const sure = make("span", group.confidence === "possible" ? "doubt" : "dim", group.confidence);
  if (group.reason) sure.title = reasons[group.reason];
  return sure;
}

function whatOf(group) {
  const what = [make("b", group.type ? "" : "mono", title(group))];
  if (group.standing !== "counts") what.push(" ", make("span", "aside", group.standing));
  if (group.type && group.signature) what.push(make("div", "dim mono", group.signature));
  return [...what, ...candidatesOf(group)];
}

function textsOf(group) {
  const names = (branches) => branches.flatMap((branch) => [branch.name ?? "", ...names(branch.below)]);
  return [title(group), group.signature, group.key, group.confidence, group.reason ?? "", group.standing,
    ...(group.candidates ?? []), group.example.address, ...names(group.tree), ...callsOf(group)];
}

function leftOut() {
  const left = report.groups_total - report.groups.length;
  if (!left) return "";
  const known = report.groups.reduce((sum, group) => sum + total(group), 0);
  return `${count(left, "more kind")} (${size(report.leaks.bytes - known)}) ` +
    `left out of this file; --limit ${report.groups_total} has them all`;
}

function detail(group) {
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
  about.append(...stackOf(group), ...exampleOf(group));
  if (!group.tree.length) return [about];
  const head = make("div", "branch head", make("span"),
    ...["bytes", "blocks", "size"].map((name) => make("span", "number", name)));
  return [part("What hangs below", make("div", "tree", head, tree(group.tree, OPEN_LEVELS))), about];
}

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

showHead();
showWarnings();
showSizes();
showTable({
  rows: report.groups, kinds: report.groups_total, columns: COLUMNS, weight: total, texts: textsOf, detail, hidden: leftOut(),
});
showLegend([
  ["direct", "blocks that the program has lost: nothing points to them"],
  ["indirect", "blocks that only leaks point to; they would be freed with those"],
  ["possible", "may still be in use, for the reason given"],
], WORDS);
showCapture([
  ["scans", ofSeveralScans(report)],
  ["no leaks", amountOf(report.collectible, "of Python objects in cycles, which its collector will free")],
  ["rest of memory", report.memory && restOf(report.memory)],
  ["baseline", report.baseline?.source],
]);
