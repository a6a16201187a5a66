// The sentences about what is wrong, the worst first; figures; the longest queues.

import { $, fill, h, list, nameLink, set, setShown, sign, spoken, timer } from "./elements.js";
import { drawQueue, queue } from "./pictures.js";
import { state } from "./state.js";
import { brief, count, many, shown } from "./words.js";

const LONGEST = 6;
const KEEPS_ORDER_MS = 5000;

export const counts = () => ({
  urgent: state.problems.filter((problem) => problem.level === "urgent").length,
  warning: state.problems.filter((problem) => problem.level === "warning").length,
});

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
  const { urgent, warning } = counts();
  set($("verdict"), verdict(urgent, warning));
  const all = ordered();
  const other = all.filter((problem) => problem.level !== "urgent");
  $("urgent-head").hidden = !urgent;
  $("other-head").hidden = !urgent || !other.length;
  paintProblems($("urgent"), all.filter((problem) => problem.level === "urgent"));
  paintProblems($("other"), other);
  paintGlance();
  paintLongest();
}

function verdict(urgent, warning) {
  if (!state.sum) return "Looking …";
  if (urgent) {
    const other = warning ? `, ${count(warning)} to know about` : "";
    return `${many(urgent, "thing")} ${urgent === 1 ? "needs" : "need"} you${other}`;
  }
  if (warning) return `Nothing is stuck; ${many(warning, "thing")} to know about`;
  return state.sum.names ? "Nothing is wrong" : "No one holds anything yet";
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

function linkTo({ id, where: [kind, name] }) {
  if (kind === "limiter") return `#/limits/${encodeURIComponent(name)}`;
  return /^(left|failed) /.test(id) ? `#/results/${encodeURIComponent(name)}` : nameLink(kind, name);
}

/** A part of a sentence. */
function drawn(part) {
  if (typeof part === "string") return part;
  if ("name" in part) return h("b", "name", shown(part.name));
  if ("label" in part) return shown(part.label);
  return timer(part.at);
}

function paintGlance() {
  const { held = 0, waiting = 0, rate = 0, mean = null } = state.sum ?? {};
  const figures = [
    [count(held), "", "leases held"],
    [count(waiting), "", "waiting"],
    [rate.toFixed(1), " /s", "grants"],
    [mean === null ? "–" : brief(mean), "", "mean wait"],
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
    link.href = row.kind === "limiter" ? `#/limits/${encodeURIComponent(row.name)}` : nameLink(row.kind, row.name);
    return link;
  };
  list($("longest"), worst, (row) => row.id, make, (link, row) => {
    setShown(link.children[0], row.name);
    drawQueue(link.children[1], row, 150);
    set(link.children[2], count(row.waiting));
  });
  $("longest").hidden = !worst.length;
  $("longest-empty").hidden = worst.length > 0;
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
