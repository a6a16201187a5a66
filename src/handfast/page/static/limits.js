// A card for each limiter: how full each of its rates is.

import { act } from "./acts.js";
import { $, button, h, list, set, setTimer, timer } from "./elements.js";
import { bar, drawBar } from "./pictures.js";
import { may, now, state } from "./state.js";
import { count, many, period, shown, span } from "./words.js";

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

export function paint(focus) {
  const all = ordered().filter((row) => !focus || row.name === focus);
  $("limits-empty").hidden = all.length > 0;
  list($("limits"), all.slice(0, 200), (row) => row.id, (row) => {
    const head = h("header", "", h("span", "mono clip", shown(row.name)), h("span", "tag hold"), button("button small", ""));
    return h("article", "limit card", head, h("div", "rates"), h("footer"));
  }, fillCard);
}

function fillCard(card, row) {
  const [head, rates, foot] = card.children;
  const [, tag, pause] = head.children;
  tag.hidden = !row.until;
  if (row.until) set(tag, `paused for ${span(row.until - now())}${row.by ? ` by ${row.by}` : ""}`);
  set(pause, row.until ? "Resume …" : "Pause …");
  pause.disabled = !may("pause");
  pause.title = pause.disabled ? "This page only looks" : "";
  pause.onclick = () => act(row.until ? "resume" : "pause", row);
  list(rates, row.rates ?? [], ([per]) => per, () => h("div", "rate", h("span"), h("span", "soft"), bar()), fillRate);
  set(foot, row.waiting ? `${count(row.waiting)} waiting` : "None wait.");
  if (row.waiting && row.first) {
    foot.append(", the first for ", timer(row.first));
    foot.given = "";
  }
}

function fillRate(element, rate) {
  const [per, limit, used, over] = rate;
  const [text, free, its] = element.children;
  if (limit) set(text, `${count(used)} of ${count(limit)} in ${period(per)}`);
  else set(text, `${many(used, "admission")} in ${period(per)}; each client brings its own limit`);
  if (used && over > now()) {
    if (!free.firstElementChild) free.replaceChildren("all free in ", timer(over));
    setTimer(free.firstElementChild, over);
  } else free.replaceChildren();
  its.hidden = !limit;
  drawBar(its, limit ? used / limit : 0, isFull(rate) ? "full" : "");
}
