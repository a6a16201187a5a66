// A card for each limiter: how full each of its rates is.

import { act, command } from "./acts.js";
import { $, button, fill, h, list, obstacle, set, setTimer, timer } from "./elements.js";
import { bar, drawBar } from "./pictures.js";
import { now, state } from "./state.js";
import { count, period, shown } from "./words.js";

const FULL = 0.9;
const FULL_FROM_S = 10; // shorter rates are full by design

const isFull = ([per, limit, used]) => limit > 0 && per >= FULL_FROM_S && used >= FULL * limit;

const limiters = () => [...state.rows.values()].filter((row) => row.kind === "limiter");

/** How many limiters need a look. */
export const badge = () => limiters().filter((row) => row.until || (row.rates ?? []).some(isFull)).length;

const weight = (row) => (row.until ? 2 : 0) + ((row.rates ?? []).some(isFull) ? 1 : 0);

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
  tag.hidden = !row.until;
  if (row.until) {
    fill(tag, `${row.until} ${row.by} ${row.why}`, () => ["paused for ", timer(row.until), ...(row.by ? [" by ", shown(row.by)] : [])]);
    tag.title = row.why ?? "";
  }
  set(pause, row.until ? "Resume …" : "Pause …");
  pause.disabled = Boolean(obstacle("pause"));
  pause.title = obstacle("pause") && `${obstacle("pause")} In a shell: ${command(row.until ? "resume" : "pause", row)}`;
  pause.onclick = () => act(row.until ? "resume" : "pause", row);
  list(rates, row.rates ?? [], ([per]) => per, () => h("div", "rate", h("span"), h("span", "soft"), bar()), fillRate);
  const [waiting, first] = foot.children;
  set(waiting, row.waiting ? `${count(row.waiting)} waiting` : "None wait.");
  first.hidden = !row.waiting || !row.first;
  if (!first.hidden) setTimer(first.lastChild, row.first);
}

function fillRate(element, rate) {
  const [per, limit, used, over] = rate;
  const [text, free, its] = element.children;
  if (limit) set(text, `${count(used)} of ${count(limit)} in ${period(per)}`);
  else set(text, `${count(used)} in ${period(per)}; each client brings its own limit`);
  const isShown = used && per >= FULL_FROM_S && over > now();
  free.hidden = !isShown;
  if (isShown && !free.firstElementChild) free.append("all free in ", timer(over));
  if (isShown) setTimer(free.firstElementChild, over);
  its.hidden = !limit;
  drawBar(its, limit ? used / limit : 0, isFull(rate) ? "full" : "");
}
