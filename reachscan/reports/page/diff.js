// The page on what changed between two scans.

const signed = (number, shown) => (number ? `${number < 0 ? "\u2212" : "+"}${shown(Math.abs(number))}` : "0");
const by = ({ old: before, new: now }, what) => now[what] - before[what];
const amount = ({ allocations, bytes }) => `${count(allocations, "block")}, ${size(bytes)}`;

const COLUMNS = [
  {
    name: "bytes", classes: "number", key: (change) => by(change, "bytes"),
    cell: (change) => [signed(by(change, "bytes"), size), bar(change)],
  },
  {
    name: "blocks", classes: "number", key: (change) => by(change, "allocations"),
    cell: (change) => [signed(by(change, "allocations"), exact)],
  },
  { name: "what happened", classes: "", key: (change) => change.what, cell: whatHappened },
  { name: "key of the kind", classes: "what", key: (change) => change.key, cell: (change) => [make("b", "mono", change.key)] },
];

function whatHappened(change) {
  const worse = change.what === "new" || change.what === "grown";
  return [make("span", worse ? "doubt" : "dim", change.what)];
}

function sideOf({ source, pid, started, method, ...rest }) {
  const host = hostOf(rest);
  return `${source}: pid ${pid}${host ? ` on ${host}` : ""} at ${started}, ${amount(rest[rest.about])} (${method})`;
}

const state = report.new.about === "leaks" ? "leaked" : "live";
const changed = Object.values(report.kinds).reduce((sum, kinds) => sum + kinds, 0)
  - report.kinds.unchanged - report.kinds.unclear;
byId("title").append(report.new.program.split("/").pop(), " ", make("small", "", "what changed"));
byId("summary").append(report.grew ? "Some kinds are new or have grown." : "Nothing is new or has grown.");
if (!report.grew) byId("summary").className = "good";
for (const name of ["old", "new"]) {
  const total = report[name][report[name].about];
  fact(`${state}, ${name} scan`, size(total.bytes), count(total.allocations, "block"));
}
fact("difference", signed(report.by.bytes, size), `${signed(report.by.allocations, exact)} blocks`);
for (const [what, kinds] of Object.entries(report.kinds)) if (kinds) fact(what, exact(kinds), kinds === 1 ? "kind" : "kinds");
showWarnings();
showTable({
  rows: report.changes,
  kinds: changed,
  columns: COLUMNS,
  weight: (change) => by(change, "bytes"),
  texts: (change) => [change.key, change.what],
  detail: (change) => [part("Before", amount(change.old)), part("Now", amount(change.new))],
  hidden: changed > report.changes.length
    ? `${count(changed - report.changes.length, "more kind")} left out of this file; --limit ${changed} has them all` : "",
});
showLegend([
  ["new, gone", "only the new scan has it, only the old one"],
  ["grown, shrunk", "there are more blocks or bytes of it, or fewer"],
  ["unclear", "one side may have left it out"],
  ["value", "a word that is no pointer, in a key"],
], WORDS);
showFacts([["old", sideOf(report.old)], ["new", sideOf(report.new)], ["reachscan", report.reachscan]]);
