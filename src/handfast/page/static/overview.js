// How things stand in a sentence; four figures; the names that are stuck, and those that are busy; and beside them the server,
// results, and what operators have set.

import { $, drawn, fill, h, list, nameLink, says, set, setShown, setTimer, shell, sign, spoken, timer } from "./elements.js";
import { drawQueue, drawSpark, queue, spark } from "./pictures.js";
import { isOld, kindOf, state } from "./state.js";
import { brief, count, time } from "./words.js";

const BUSIEST = 6;
const MOST = 50; // rows of names that are no longer moving
const KEEPS_ORDER_MS = 5000;
const PICTURE = 208;

/** How many things are of the worst level, and that level. Notes do not count. */
export const badge = () => {
  const { urgent = 0, warnings = 0 } = state.verdict ?? {};
  return urgent ? [urgent, "urgent"] : [warnings, "warning"];
};

/** Rules that a row shows by itself: by its waits, and by how many are silent. */
const SHOWN_IN_ROWS = ["waits", "silent", "stopped"];

let places = new Map();
let orderedAt = -Infinity;

/** Keep places for five seconds, and while something is marked. New ones come last until then. */
function settled(items) {
  const isFixed = marked.id || performance.now() < orderedAt + KEEPS_ORDER_MS;
  if (!isFixed) {
    orderedAt = performance.now();
    places = new Map();
  }
  for (const item of items) if (!places.has(item.id)) places.set(item.id, places.size);
  return [...items].sort((a, b) => places.get(a.id) - places.get(b.id));
}

/** The row or the problem that keys have marked, by its id. */
export const marked = { id: null };

export function paint() {
  paintVerdict();
  paintGlance();
  const { problems } = state;
  const ofNames = problems.filter((problem) => problem.group === "names");
  const idsOf = (wanted) => new Set(ofNames.filter(({ level }) => level === wanted).map(({ where: [kind, name] }) => `${kind}/${name}`));
  const [stuck, doubtful] = [idsOf("urgent"), idsOf("warning")];
  const rows = [...stuck].map((id) => state.rows.get(id)).filter(Boolean);
  const busy = [...state.rows.values()].filter((row) => row.waiting && !stuck.has(row.id) && !row.item)
    .sort((a, b) => doubtful.has(b.id) - doubtful.has(a.id) || b.waiting - a.waiting || (a.id < b.id ? -1 : 1))
    .filter((row, place) => place < BUSIEST || doubtful.has(row.id)).slice(0, MOST);
  const [worst, others] = [settled(rows), settled(busy)];
  $("stuck-head").hidden = $("stuck").hidden = !worst.length;
  paintRows($("stuck"), worst, "stuck");
  $("busy-head").hidden = $("longest").hidden = !others.length;
  paintRows($("longest"), others, "", doubtful);
  $("longest-empty").hidden = !state.sum || rows.length + busy.length > 0 || !state.sum.names;
  $("legend").hidden = !rows.length && !busy.length;
  paintProblems("other", ofNames.filter(({ level, id }) => level === "warning" && !SHOWN_IN_ROWS.includes(id.split(" ", 1)[0])));
  paintProblems("urgent", problems.filter(({ group, level }) => group === "server" && level === "urgent"));
  paintProblems("server", problems.filter(({ group, level }) => group === "server" && level !== "urgent"));
  $("server-head").hidden = $("server-card").hidden = !problems.some(({ group }) => group === "server");
  paintProblems("once", problems.filter(({ group }) => group === "results"));
  paintProblems("stops", ofNames.filter(({ id }) => id.startsWith("stopped ")));
  const isEmpty = Boolean(state.sum?.whole && !state.sum.names);
  $("teach").hidden = !isEmpty || isOld();
  if (isEmpty) teach();
}

// --- the verdict

/** What is to be said first. Of an outage nothing is known but that. */
function verdict() {
  if (state.lost) return ["urgent", "This page has lost its server", []];
  if (state.outage) return ["urgent", state.outage.server ? "The server does not answer" : "The page cannot look", []];
  if (!state.verdict) return ["", "Looking …", []];
  return [state.verdict.level ?? "fine", state.verdict.text, state.verdict.means];
}

function paintVerdict() {
  const [level, text, means] = verdict();
  set($("verdict"), text);
  fill($("verdict-sign"), level, () => (level ? [sign(level)] : []));
  const dated = isOld() && state.at ? [`What you see is from ${time(state.at)}.`] : means;
  fill($("verdict-means"), JSON.stringify(dated), () => says(dated));
}

// --- four figures, with five minutes behind each

function paintGlance() {
  const { held, waiting, rate, mean } = state.sum ?? {};
  const known = (value, text) => (value === undefined || value === null ? "–" : text(value));
  const [waits = [], holds = [], rates = [], means = []] = state.minutes ?? [];
  const figures = [
    ["Waiting", known(waiting, count), "", waits, "waits"],
    ["Leases held", known(held, count), "", holds, ""],
    ["Grants", known(rate, (value) => value.toFixed(1)), " a second", rates, ""],
    ["Mean wait", known(mean, brief), "", means, ""],
  ];
  const make = ([what, , unit, , name]) => {
    const curve = spark([], 120, 26);
    if (name) curve.classList.add(name);
    return h("div", "figure", h("span", "", what), h("b", "", h("span"), h("small", "", unit)), curve);
  };
  list($("glance"), figures, ([what]) => what, make, (element, [what, figure, , samples]) => {
    set(element.children[1].firstChild, figure);
    const curve = element.lastChild;
    if (curve.samples !== samples) drawSpark(curve, (curve.samples = samples), 120, 26, what.toLowerCase());
  });
}

// --- names

function makeRow(row) {
  const link = h("a", "busy");
  link.href = kindOf(row).rates ? `#/limits/${encodeURIComponent(row.name)}` : nameLink(row.kind, row.name);
  const held = h("div", "c-by", h("div", "clip"), h("small", "soft", "for ", timer(0)));
  const first = h("div", "num c-first", timer(0), h("small", "soft"));
  link.append(h("div", "c-name", h("b", "mono"), h("small", "soft", row.kind)), held, queue({}, PICTURE, 22), h("div", "num"), first);
  return link;
}

function paintRows(parent, rows, name, doubtful = new Set()) {
  list(parent, rows, (row) => row.id, makeRow, (link, row) => {
    const [title, by, picture, waiting, first] = link.children;
    link.className = `busy ${name}${doubtful.has(row.id) ? "doubtful" : ""}${marked.id === row.id ? " marked" : ""}`;
    setShown(title.firstChild, row.name);
    fill(by.firstChild, JSON.stringify(row.who), () => (row.who ?? ["free"]).map(drawn));
    by.lastChild.hidden = !row.since;
    if (row.since) setTimer(by.lastChild.lastChild, row.since);
    drawQueue(picture, row, PICTURE, 22);
    set(waiting, row.waiting ? count(row.waiting) : "");
    first.firstChild.hidden = !row.first;
    if (row.first) setTimer(first.firstChild, row.first);
    set(first.lastChild, row.silent ? (row.silent === row.waiting ? "all silent" : `${count(row.silent)} silent`) : "");
  });
}

// --- sentences

function paintProblems(id, problems) {
  const shown = settled(problems);
  const parent = $(id);
  parent.hidden = !shown.length;
  const head = $(`${id}-head`);
  if (head && id !== "server") head.hidden = !shown.length;
  list(parent, shown, (problem) => problem.id, (problem) => h("li", "", h(problem.where ? "a" : "div")), (item, problem) => {
    const body = item.firstChild;
    if (problem.where) body.href = linkTo(problem);
    body.className = `problem ${problem.level}${marked.id === problem.id ? " marked" : ""}`;
    fill(body, JSON.stringify([problem.level, problem.says, problem.means, problem.command]), () => [
      sign(problem.level),
      h("div", "", h("div", "says", spoken(problem.level), ...problem.says.map(drawn)), h("div", "means", ...problem.means.map(drawn)),
        problem.command ? shell(problem.command) : ""),
    ]);
  });
}

function linkTo({ group, where: [kind, name] }) {
  if (kindOf({ kind }).rates) return `#/limits/${encodeURIComponent(name)}`;
  return group === "results" ? `#/results/${encodeURIComponent(name)}` : nameLink(kind, name);
}

// --- an empty server

/** The first three lines of a program, with the server that this page looks at. */
function teach() {
  const { server, namespace } = state.me;
  const named = namespace && namespace !== "hf" ? `, namespace=${JSON.stringify(namespace)}` : "";
  const code = `from handfast import Handfast\n\nhf = Handfast(${JSON.stringify(server)}${named})\nwith hf.lock("report"):\n    print("no one else is in here")\n`;
  set($("teach-code"), code);
}

// --- keys

/** Mark the row or the problem that is so many further down. */
export function mark(step) {
  const all = [...document.querySelectorAll("[data-section=overview] :is(a.busy, a.problem)")].filter((link) => link.checkVisibility());
  const place = Math.max(0, Math.min(all.length - 1, all.findIndex((link) => link.classList.contains("marked")) + step));
  const link = all[place];
  marked.id = link ? keyOf(link) : null;
  paint();
  document.querySelector("[data-section=overview] .marked")?.scrollIntoView({ block: "nearest" });
}

const keyOf = (link) => {
  const item = link.closest("li") ?? link;
  for (const [key, element] of item.parentElement.byKey) if (element === item) return key;
  return null;
};

/** Open what is marked. Return false if nothing is. */
export function open() {
  const link = document.querySelector("[data-section=overview] .marked");
  link?.click();
  return Boolean(link);
}
