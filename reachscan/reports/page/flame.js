// Who allocated it: a graph in which each function is as wide as what was allocated below it. The callers
// are above, or with `inverted` the functions that called for memory, and their callers below them.

const profile = read("profile"); // {names, stacks: [{path: [outermost, ...], thread, allocations, bytes}]}
const ROW = 19; // pixels
const LETTER = 6.7;
const HUES = 6;
const flame = { root: null, zoomed: null };

function showProfile() {
  if (!profile?.stacks.length) return;
  const threads = [...new Set(profile.stacks.map((stack) => stack.thread).filter(Boolean))].sort();
  for (const thread of threads) byId("thread").append(new Option(thread, thread));
  for (const id of ["weight", "thread", "inverted"]) byId(id).addEventListener("change", growFlame);
  byId("frames").addEventListener("input", drawFlame);
  byId("flame").hidden = false;
  new ResizeObserver(drawFlame).observe(byId("flame").querySelector(".graph"));
  growFlame();
}

const branch = (name, above) => ({ name, above, value: 0, below: new Map() });

// The tree of calls, by what the controls say.
function growFlame() {
  const [weight, thread, inverted] = [byId("weight").value, byId("thread").value, byId("inverted").checked];
  const root = branch(thread || "all", null);
  for (const stack of profile.stacks) {
    if (thread && stack.thread !== thread) continue;
    const path = inverted ? [...stack.path].reverse() : stack.path;
    let at = root;
    at.value += stack[weight];
    for (const name of path) {
      if (!at.below.has(name)) at.below.set(name, branch(profile.names[name], at));
      at = at.below.get(name);
      at.value += stack[weight];
    }
  }
  flame.root = flame.zoomed = root;
  drawFlame();
}

const amount = (value) => (byId("weight").value === "bytes" ? size(value) : count(value, "block"));

const percent = (value) => `${((100 * value) / (flame.root.value || 1)).toFixed(1)} %`;

function drawFlame() {
  const graph = byId("flame").querySelector(".graph");
  const width = graph.clientWidth;
  if (!flame.root || !width) return;
  const wanted = byId("frames").value.toLowerCase();
  const way = [];
  for (let at = flame.zoomed; at; at = at.above) way.unshift(at);
  const all = drawn("svg", { width, role: "group" });
  // What was zoomed into is as wide as what it hangs below.
  way.slice(0, -1).forEach((node, row) => all.append(frame(node, 0, row, width, wanted, "passed")));
  let rows = 0;
  const open = [{ node: flame.zoomed, left: 0, row: way.length - 1 }];
  const scale = width / (flame.zoomed.value || 1);
  while (open.length) {
    const { node, left, row } = open.pop();
    const wide = node.value * scale;
    if (wide < 1 && node !== flame.zoomed) continue;
    all.append(frame(node, left, row, wide, wanted, ""));
    rows = Math.max(rows, row + 1);
    let next = left;
    for (const child of [...node.below.values()].sort((a, b) => b.value - a.value)) {
      open.push({ node: child, left: next, row: row + 1 });
      next += child.value * scale;
    }
  }
  all.setAttribute("height", rows * ROW);
  graph.replaceChildren(all);
  byId("share").textContent = wanted ? `${percent(matching(flame.root, wanted))} match`
    : `${amount(flame.zoomed.value)}, ${percent(flame.zoomed.value)}`;
}

const matches = (node, wanted) => wanted !== "" && node.above !== null && node.name.toLowerCase().includes(wanted);

// What is below any function that matches, counted once. Stacks are no deeper than the recorder allows.
function matching(node, wanted) {
  if (matches(node, wanted)) return node.value;
  return [...node.below.values()].reduce((sum, child) => sum + matching(child, wanted), 0);
}

const hue = (name) => [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 9973, 7) % HUES;

function frame(node, left, row, width, wanted, more) {
  const kind = matches(node, wanted) ? "found" : node.above ? `hue${hue(node.name)}` : "";
  const group = drawn("g", { class: `frame ${kind} ${more}`.trim(), tabindex: 0, role: "button" });
  const said = `${node.name}: ${amount(node.value)}, ${percent(node.value)}`;
  const letters = Math.floor((width - 6) / LETTER);
  const shown = node.name.length <= letters ? node.name : letters > 2 ? `${node.name.slice(0, letters - 1)}\u2026` : "";
  group.setAttribute("aria-label", said);
  group.append(
    drawn("title", {}, said),
    drawn("rect", { x: left, y: row * ROW, width: Math.max(width - 1, 0.5), height: ROW - 1, rx: 2 }),
    drawn("text", { x: left + 4, y: row * ROW + 13 }, shown));
  const zoom = () => {
    flame.zoomed = node;
    drawFlame();
  };
  group.addEventListener("click", zoom);
  group.addEventListener("keydown", (event) => event.key === "Enter" && zoom());
  return group;
}

showProfile();
