// The page on the live heap.

const COLUMNS = [
  { name: "bytes", classes: "number", key: (group) => group.bytes, cell: (group) => [size(group.bytes), bar(group)] },
  { name: "blocks", classes: "number", key: (group) => group.allocations, cell: (group) => [exact(group.allocations)] },
  { name: "size", classes: "number", key: (group) => range(group)[1], cell: (group) => [sizeOf(group)] },
  { name: "what is allocated", classes: "what", key: title, cell: whatOf },
];

function whatOf(group) {
  const what = [make("b", group.type ? "" : "mono", title(group))];
  if (group.type && group.signature) what.push(make("div", "dim mono", group.signature));
  return [...what, ...candidatesOf(group)];
}

function detail(group) {
  const about = make("div");
  if (group.sizes.length > 1) {
    about.append(part("Blocks by size in bytes", make("div", "chart", chartOfGroup(group.sizes))));
  }
  const arenas = group.arenas.map(({ arena, allocations, bytes }) =>
    `${count(allocations, "block")}, ${size(bytes)} in ${arena ? `arena ${arena}` : "the main arena"}`);
  about.append(part("Where", arenas.join("; ")), ...stackOf(group), ...exampleOf(group));
  return [about];
}

function leftOut() {
  const left = report.groups_total - report.groups.length;
  const known = report.groups.reduce((sum, group) => sum + group.bytes, 0);
  return left ? `${count(left, "more kind")} (${size(report.heap.bytes - known)}) ` +
    `left out of this file; --limit ${report.groups_total} has them all` : "";
}

byId("title").append(report.target.name, " ", make("small", "", `pid ${report.target.pid}`));
byId("summary").append("What the live heap is made of, leaked or not.");
fact("allocated", size(report.heap.bytes), count(report.heap.allocations, "live block"));
fact("paused", time(report.snapshot.pause_us), `by method ${report.snapshot.method}`);
showWarnings();
showTable({
  rows: report.groups,
  kinds: report.groups_total,
  columns: COLUMNS,
  weight: (group) => group.bytes,
  texts: (group) => [title(group), group.signature, group.key, ...(group.candidates ?? []), group.example.address,
    ...callsOf(group)],
  detail,
  hidden: leftOut(),
});
showLegend([], WORDS);
showCapture();
