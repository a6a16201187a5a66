// The sentences about what is wrong, the worst first; figures; the longest queues.

import { $, drawn, fill, h, list, nameLink, set, setShown, sign, spoken } from "./elements.js";
import { drawQueue, queue } from "./pictures.js";
import { isOld, kindOf, state } from "./state.js";
import { brief, count, time } from "./words.js";

const LONGEST = 6;
const KEEPS_ORDER_MS = 5000;

const countOf = (level) => state.problems.filter((problem) => problem.level === level).length;

/** How many problems there are of the worst level, and that level. Notes do not count. */
export const badge = () => (countOf("urgent") ? [countOf("urgent"), "urgent"] : [countOf("warning"), "warning"]);

let places = new Map();
let orderedAt = -Infinity;

/** The problems; they keep their places for five seconds, and while a problem is marked. New ones come last until then. */
function ordered() {
  if (!marked.id && performance.now() > orderedAt + KEEPS_ORDER_MS) {
    orderedAt = performance.now();
    places = new Map(state.problems.map((problem, place) => [problem.id, place]));
  }
  const place = (problem) => places.get(problem.id) ?? Infinity;
  const all = [...state.problems].sort((a, b) => (place(a) < place(b) ? -1 : place(a) > place(b) ? 1 : 0));
  return [...all.filter((problem) => problem.level === "urgent"), ...all.filter((problem) => problem.level !== "urgent")];
}

/** The problem that keys have marked, by its id. */
export const marked = { id: null };

export function paint() {
  set($("verdict"), verdict());
  paintDate();
  const all = ordered();
  const urgent = all.filter((problem) => problem.level === "urgent");
  const other = all.filter((problem) => problem.level !== "urgent");
  $("urgent-head").hidden = !urgent.length;
  $("other-head").hidden = !other.length;
  paintProblems($("urgent"), urgent);
  paintProblems($("other"), other);
  paintGlance();
  paintLongest();
}

/** What is to be said first. Of an outage nothing is known but that. */
function verdict() {
  if (state.lost) return "This page has lost its server";
  if (state.outage) return state.outage.server ? "The server does not answer" : "The page cannot look";
  return state.sum ? state.sum.verdict[1] : "Looking …";
}

function paintDate() {
  const isDated = isOld() && state.at > 0;
  $("dated").hidden = !isDated;
  if (isDated) fill($("dated"), String(state.at), () => [`What you see is from ${time(state.at)}.`]);
}

function paintProblems(parent, problems) {
  list(parent, problems, (problem) => problem.id, () => h("li", "", h("a")), (item, problem) => {
    const link = item.firstChild;
    link.href = problem.where ? linkTo(problem) : "#/doctor";
    link.className = `problem ${problem.level}${marked.id === problem.id ? " marked" : ""}`;
    fill(link, JSON.stringify([problem.level, problem.says, problem.means]), () => {
      const says = h("div", "says", spoken(problem.level), ...problem.says.map(drawn));
      const arrow = h("span", "arrow", "›");
      arrow.setAttribute("aria-hidden", "true");
      return [sign(problem.level), h("div", "", says, h("div", "means", ...problem.means.map(drawn))), arrow];
    });
  });
}

function linkTo({ group, where: [kind, name] }) {
  if (kindOf({ kind }).rates) return `#/limits/${encodeURIComponent(name)}`;
  return group === "results" ? `#/results/${encodeURIComponent(name)}` : nameLink(kind, name);
}

function paintGlance() {
  const { held, waiting, rate, mean } = state.sum ?? {};
  const known = (value, text) => (value === undefined || value === null ? "–" : text(value));
  const figures = [
    [known(held, count), "", "leases held"],
    [known(waiting, count), "", "waiting"],
    [known(rate, (value) => value.toFixed(1)), " /s", "grants"],
    [known(mean, brief), "", "mean wait"],
  ];
  const make = ([, unit, what]) => h("div", "figure", h("b", "", h("span"), h("small", "", unit)), h("span", "", what));
  list($("glance"), figures, (figure) => figure[2], make, (element, [figure]) => set(element.firstChild.firstChild, figure));
}

function paintLongest() {
  const worst = [...state.rows.values()]
    .filter((row) => row.waiting)
    .sort((a, b) => b.waiting - a.waiting || (a.id < b.id ? -1 : 1))
    .slice(0, LONGEST);
  const make = (row) => {
    const link = h("a", "", h("span", "mono clip"), queue({}, 150), h("b", "num"));
    link.href = kindOf(row).rates ? `#/limits/${encodeURIComponent(row.name)}` : nameLink(row.kind, row.name);
    return link;
  };
  list($("longest"), worst, (row) => row.id, make, (link, row) => {
    setShown(link.children[0], row.name);
    drawQueue(link.children[1], row, 150);
    set(link.children[2], count(row.waiting));
  });
  $("longest").hidden = !worst.length;
  $("longest-empty").hidden = !state.sum || worst.length > 0;
}

/** Mark the problem that is so many further down. */
export function mark(step) {
  const all = ordered();
  const place = Math.max(0, Math.min(all.length - 1, all.findIndex((problem) => problem.id === marked.id) + step));
  marked.id = all[place]?.id ?? null;
  paint();
  document.querySelector(".problem.marked")?.scrollIntoView({ block: "nearest" });
}

/** Open the marked problem. Return false if none is. */
export function open() {
  const link = document.querySelector(".problem.marked");
  link?.click();
  return Boolean(link);
}
