// A card for each limiter: how full each of its rates is.

import { act, command } from "./acts.js";
import { $, button, fill, h, list, obstacle, set, setTimer, timer } from "./elements.js";
import { bar, drawBar } from "./pictures.js";
import { kindOf, now, state } from "./state.js";
import { count, period, shown } from "./words.js";

const isFull = ([, , , , full]) => full;

const limiters = () => [...state.rows.values()].filter((row) => kindOf(row).rates);

/** How many limiters have a problem. */
export const badge = () => {
  const names = state.problems.filter((problem) => problem.where && kindOf({ kind: problem.where[0] }).rates && problem.level !== "note");
  return new Set(names.map((problem) => problem.where[1])).size;
};

const weight = (row) => (row.stop ? 2 : 0) + ((row.rates ?? []).some(isFull) ? 1 : 0);

let orderedAt = 0;
let places = new Map();

/** Cards keep their places for five seconds. */
function ordered() {
  const all = limiters();
  if (performance.now() > orderedAt + 5000) {
    orderedAt = performance.now();
    all.sort((a, b) => weight(b) - weight(a) || (b.waiting ?? 0) - (a.waiting ?? 0) || a.name.localeCompare(b.name));
    places = new Map(all.map((row, place) => [row.id, place]));
  }
  const place = (row) => places.get(row.id) ?? Infinity;
  return all.sort((a, b) => (place(a) < place(b) ? -1 : place(a) > place(b) ? 1 : 0));
}

const SHOWN = 200;

export function paint(focus) {
  const all = ordered();
  const some = focus ? all.filter((row) => row.name === focus) : all;
  paintOnly("limits", focus, some.length);
  $("limits-empty").hidden = all.length > 0;
  list($("limits"), some.slice(0, SHOWN), (row) => row.id, (row) => {
    const head = h("header", "", h("span", "mono clip", shown(row.name)), h("span", "tag hold"), button("button small", ""));
    return h("article", "limit card", head, h("div", "rates"), h("footer", "", h("span"), h("span", "", ", the first for ", timer(0))));
  }, fillCard);
  set($("limits-more"), some.length > SHOWN ? `${count(some.length - SHOWN)} more limiters are not shown.` : "");
}

/** Say that a view is narrowed to a name by a link. */
export function paintOnly(view, focus, number) {
  const box = $(`${view}-only`);
  box.hidden = !focus;
  if (!focus) return;
  fill(box, `${focus} ${number > 0}`, () => {
    const all = h("a", "", "Show all");
    all.href = `#/${view}`;
    return [number ? "Only " : "The server does not know ", shown(focus), ". ", all];
  });
}

function fillCard(card, row) {
  const [head, rates, foot] = card.children;
  const [, tag, pause] = head.children;
  const { stop } = row;
  tag.hidden = !stop;
  if (stop) {
    fill(tag, JSON.stringify(stop), () => [`${stop.what} for `, timer(stop.until), ...(stop.by ? [" by ", shown(stop.by)] : [])]);
    tag.title = stop.why;
  }
  set(pause, stop ? "Resume …" : "Pause …");
  pause.disabled = Boolean(obstacle("pause"));
  pause.title = obstacle("pause") && `${obstacle("pause")} In a shell: ${command(stop ? "resume" : "pause", row)}`;
  pause.onclick = () => act(stop ? "resume" : "pause", row);
  const make = () => h("div", "rate", h("span"), h("span", "soft"), bar());
  list(rates, row.rates ?? [], ([per, , , , , metric]) => `${metric} ${per}`, make, (element, rate) => fillRate(element, rate, row.waiting));
  const [waiting, first] = foot.children;
  foot.hidden = !row.waiting;
  set(waiting, `${count(row.waiting ?? 0)} waiting`);
  first.hidden = !row.waiting || !row.first;
  if (!first.hidden) setTimer(first.lastChild, row.first);
}

function fillRate(element, rate, waiting) {
  const [per, limit, used, over, , metric] = rate;
  const what = metric && ` ${metric}`;
  const [text, free, its] = element.children;
  if (limit) set(text, `${count(used)} of ${count(limit)}${what} in ${period(per)}`);
  else set(text, `${count(used)}${what} in ${period(per)}; each client brings its own limit`);
  const isShown = used && over > now() && !waiting; // those who wait take what is free
  free.hidden = !isShown;
  if (isShown && !free.firstElementChild) free.append("all free in ", timer(over));
  if (isShown) setTimer(free.firstElementChild, over);
  its.hidden = !limit;
  drawBar(its, limit ? used / limit : 0, isFull(rate) ? "full" : "");
}
