// The table of names. Only rows in sight are elements; each stands at its own place, so scrolling moves nothing else.

import { $, button, drawn, fill, h, list, nameLink, set, setShown } from "./elements.js";
import { bar, drawBar, drawQueue, drawSpark, leaseLevel, queue, spark } from "./pictures.js";
import { kindOf, now, state } from "./state.js";
import { count, many, span } from "./words.js";

const KEEPS_ORDER_MS = 5000;
const BEYOND = 6; // rows above and below those in sight

/** The columns: the key to sort by, the head, a class. */
const COLUMNS = [
  ["name", "Name", ""], ["kind", "Kind", "c-kind"], ["by", "Held by", ""], ["held", "Held", "r"],
  ["lease", "Lease", "c-lease"], ["waiting", "Queue", "r"], [null, "Held, and waiting", ""],
  ["first", "First waits", "r"], ["rate", "Grants/s", "c-rate r"], [null, "Last 5 min", "c-spark"],
];

const SORTS = {
  name: (row) => row.name,
  kind: (row) => row.kind,
  by: (row) => row.by ?? "\uffff",
  held: (row) => row.since ?? Infinity,
  lease: (row) => row.ends ?? Infinity,
  waiting: (row) => -(row.waiting ?? 0),
  first: (row) => row.first ?? Infinity,
  rate: (row) => -(row.rate ?? 0),
};

/** Their largest values come first at first. */
const DOWN = ["held", "waiting", "first", "rate"];

const isLong = (row) => Boolean(row.since) && now() - row.since > state.me.thresholds.held_long;

const WHICH = [
  ["all", "All", (row) => !row.idle],
  ["waiting", "Waited for", (row) => row.waiting > 0],
  ["long", "Held over 30 min", isLong],
  ["hold", "On hold", (row) => Boolean(row.stop)],
  ["idle", "Used in the last hour", (row) => Boolean(row.idle)],
];

const table = { sort: "waiting", isTurned: false, which: "all", filter: "", rows: [], marked: null, scrolled: 0 };
let orderedAt = 0;
let isPointedAt = false;
let rowHeight = 36;

/** Put rows in order. They keep their places while one is marked or pointed at, and for five seconds in any case. */
function order(isForced = false) {
  const isFixed = isPointedAt || table.marked || performance.now() < orderedAt + KEEPS_ORDER_MS;
  table.rows = table.rows.map((row) => state.rows.get(row.id)).filter(Boolean);
  if (!isForced && isFixed && orderedAt) return;
  orderedAt = state.number ? performance.now() : 0;
  const words = table.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const test = WHICH.find(([key]) => key === table.which)[2];
  const by = SORTS[table.sort];
  table.rows = [...state.rows.values()].filter(
    (row) => isListed(row) && test(row) && words.every((word) => searched(row).includes(word)),
  );
  table.rows.sort((a, b) => {
    const [x, y] = [by(a), by(b)];
    const way = x < y ? -1 : x > y ? 1 : (a.since ?? Infinity) - (b.since ?? Infinity) || (a.id < b.id ? -1 : 1);
    return table.isTurned ? -way : way;
  });
}

/** Limiters have a view of their own, and the items of a name are listed with it, unless they are looked for. */
const isListed = (row) => !kindOf(row).rates && (!row.item || table.filter);

const searched = (row) => `${row.name} ${row.kind} ${row.by ?? ""} ${row.stop?.by ?? ""}`.toLowerCase();

/** How many names each choice has, in one pass. */
function numbers() {
  const found = Object.fromEntries(WHICH.map(([key]) => [key, 0]));
  let known = 0;
  for (const row of state.rows.values()) {
    if (!isListed(row)) continue;
    known++;
    for (const [key, , test] of WHICH) if (test(row)) found[key]++;
  }
  return { ...found, known };
}

export function paint() {
  order();
  paintHead();
  const found = numbers();
  const make = ([key, text]) => button("chip", text, () => choose(key));
  list($("which"), WHICH, ([key]) => key, make, (chip, [key]) => {
    chip.setAttribute("aria-pressed", String(table.which === key));
    if (!chip.firstElementChild) chip.append(" ", h("b"));
    set(chip.firstElementChild, key === "all" ? "" : count(found[key]));
  });
  const all = table.which === "idle" ? found.idle : found.all;
  const left = state.sum?.left_out ? `; ${count(state.sum.left_out)} idle ones are not shown` : "";
  set($("matches"), table.filter || !["all", "idle"].includes(table.which)
    ? `${count(table.rows.length)} of ${many(found.known, "name")}` : many(all, "name") + left);
  paintEmpty(found.known);
  paintRows();
}

function paintEmpty(known) {
  const isEmpty = !table.rows.length;
  $("grid").hidden = isEmpty;
  $("grid-empty").hidden = !isEmpty;
  if (!isEmpty) return;
  const isNarrowed = table.filter || table.which !== "all";
  const canClear = Boolean(isNarrowed && known);
  const [head, text] = !state.sum?.whole ? ["Looking …", ""]
    : canClear ? [table.filter ? `Nothing matches “${table.filter}”` : "No name is like that now", ""]
    : ["No name is held or waited for", "A name shows up here with its first lease."];
  fill($("grid-empty"), `${head} ${canClear}`, () => [
    h("b", "", head), text && h("span", "", text),
    canClear ? button("button small", "Clear (esc)", () => {
      clear();
      refresh();
    }) : "",
  ]);
}

function paintHead() {
  const make = ([sort, title, name]) => {
    const cell = h("div", name, sort ? button("", title, () => sortBy(sort)) : h("span", "soft", title));
    cell.setAttribute("role", "columnheader");
    return cell;
  };
  list($("grid-head"), COLUMNS, ([, title]) => title, make, (cell, [sort]) => {
    if (table.sort !== sort) cell.removeAttribute("aria-sort");
    else cell.setAttribute("aria-sort", table.isTurned === DOWN.includes(sort) ? "ascending" : "descending");
  });
}

function sortBy(sort) {
  table.isTurned = table.sort === sort && !table.isTurned;
  table.sort = sort;
  refresh();
}

const CELLS = {
  name: "c-name clip", kind: "c-kind", by: "c-by clip", held: "c-held", lease: "c-lease", waiting: "c-waiting",
  queue: "c-queue", first: "c-first", rate: "c-rate", spark: "c-spark",
};

function makeRow() {
  const element = h("div", "grid-row");
  element.setAttribute("role", "row");
  element.cells = {};
  for (const [key, name] of Object.entries(CELLS)) {
    const cell = (element.cells[key] = h("div", name));
    cell.setAttribute("role", "gridcell");
    element.append(cell);
  }
  const { lease, queue: picture, spark: minutes } = element.cells;
  lease.append(bar(), h("span"));
  picture.append(queue({}, 160));
  minutes.append(spark([], 96));
  element.onclick = () => openRow(element.row);
  return element;
}

const pictureWidth = () => (innerWidth < 720 ? 132 : innerWidth < 1024 ? 128 : innerWidth < 1280 ? 158 : 168);

function fillRow(element, row, place) {
  const { name, kind, by, held, lease, waiting, queue: picture, first, rate, spark: minutes } = element.cells;
  element.row = row;
  const y = place * rowHeight;
  if (element.y !== y) element.style.transform = `translateY(${(element.y = y)}px)`;
  if (element.place !== place) {
    element.place = place;
    element.setAttribute("aria-rowindex", place + 2);
    element.id = `row-${place}`;
  }
  element.setAttribute("aria-selected", String(table.marked === row.id));
  setShown(name, row.name);
  set(kind, row.kind);
  fillHolder(by, row);
  const isAwaited = row.waiting && !kindOf(row).stands_by;
  set(held, row.since ? span(now() - row.since) : "");
  held.className = `c-held${isLong(row) && isAwaited ? " alarming" : ""}`;
  fillLease(lease, row);
  set(waiting, row.waiting ? count(row.waiting) : "");
  drawQueue(picture.firstChild, row, pictureWidth());
  const wait = row.first ? now() - row.first : 0;
  set(first, row.first ? span(wait) : "");
  const { waited_long: long, waited_too_long: tooLong } = state.me.thresholds;
  const level = !isAwaited ? "" : wait > tooLong ? " alarming" : wait > long ? " warning" : "";
  first.className = `c-first${level}`;
  set(rate, row.rate ? row.rate.toFixed(1) : "");
  minutes.firstChild.style.visibility = row.spark ? "" : "hidden";
  if (row.spark && minutes.drawn !== row.spark) drawSpark(minutes.firstChild, (minutes.drawn = row.spark), 96);
}

function fillHolder(cell, row) {
  const isStopped = row.stop && !row.holding;
  cell.classList.toggle("soft", !row.holding && !row.stop);
  fill(cell, JSON.stringify([row.who, Boolean(row.stop)]), () => [
    ...(row.stop ? [h("span", "tag hold", row.stop.what), " "] : []),
    ...(isStopped ? [drawn({ label: row.stop.by })] : (row.who ?? ["free"]).map(drawn)),
  ]);
}

function fillLease(cell, row) {
  const left = row.ends ? row.ends - now() : 0;
  const [its, text] = cell.children;
  its.hidden = !row.ttl;
  drawBar(its, row.ttl ? left / row.ttl : 0, leaseLevel(left, row.ttl, row.released));
  set(text, !row.ends ? "" : row.released ? "kept" : left < 0 ? "…" : span(left).replace(/ m .*/, " m"));
}

/** Paint the rows in sight. */
export function paintRows() {
  const body = $("grid-body");
  rowHeight = innerWidth < 720 ? 62 : 36;
  body.style.height = `${table.rows.length * rowHeight}px`;
  $("grid").setAttribute("aria-rowcount", table.rows.length + 1);
  const top = -body.getBoundingClientRect().top;
  const first = Math.max(0, Math.floor(top / rowHeight) - BEYOND);
  const last = Math.min(table.rows.length, Math.ceil((top + innerHeight) / rowHeight) + BEYOND);
  const inSight = table.rows.slice(first, last).map((row, place) => [row, first + place]);
  list(body, inSight, ([row]) => row.id, makeRow, (element, [row, place]) => fillRow(element, row, place));
  const place = table.marked ? table.rows.findIndex((row) => row.id === table.marked) : -1;
  if (place < first || place >= last) $("grid").removeAttribute("aria-activedescendant");
  else $("grid").setAttribute("aria-activedescendant", `row-${place}`);
}

function refresh() {
  order(true);
  paint();
  set($("matches-spoken"), $("matches").textContent); // only what was asked for is spoken, not each second
}

function choose(which) {
  table.which = which;
  table.marked = null;
  refresh();
}

function openRow(row) {
  table.marked = row.id;
  location.hash = nameLink(row.kind, row.name).slice(1);
}

/** Open the marked row. Return false if none is. */
export function open() {
  const row = state.rows.get(table.marked);
  if (!row) return false;
  openRow(row);
  return true;
}

/** Mark the row that is so many further down. */
export function mark(step) {
  const place = table.rows.findIndex((row) => row.id === table.marked) + step;
  const next = table.rows[Math.max(0, Math.min(table.rows.length - 1, place))];
  if (!next) return;
  table.marked = next.id;
  if (document.activeElement === document.body) $("grid").focus({ preventScroll: true });
  const y = $("grid-body").getBoundingClientRect().top + table.rows.indexOf(next) * rowHeight;
  const heads = [document.querySelector(".top"), $("grid-head")].map((head) => head.getBoundingClientRect().bottom);
  const [low, high] = [Math.max(...heads), innerHeight - rowHeight - 8];
  if (y < low) scrollBy(0, y - low);
  else if (y > high) scrollBy(0, y - high);
  paintRows();
}

/** Unmark, or show all. Return false if there is nothing to go back from. */
export function goBack() {
  if (table.marked) table.marked = null;
  else if (table.filter || table.which !== "all") clear();
  else return false;
  refresh();
  return true;
}

function clear() {
  $("filter").value = table.filter = "";
  table.which = "all";
}

/** Show the table as it was left. */
export function enter() {
  table.marked = null;
  paint();
  scrollTo(0, table.scrolled);
  paintRows();
}

/** Listen to the filter, the pointer and the scroll bar. */
export function listen(isShown) {
  $("filter").oninput = () => {
    table.filter = $("filter").value;
    table.marked = null;
    refresh();
    scrollTo(0, 0);
  };
  $("grid").addEventListener("pointerenter", () => { isPointedAt = true; });
  $("grid").addEventListener("pointerleave", () => { isPointedAt = false; });
  let isDue = false;
  addEventListener("scroll", () => {
    if (!isShown()) return;
    table.scrolled = scrollY;
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      if (isShown()) paintRows();
    });
  }, { passive: true });
}

/** Keys within the filter. Return whether it was for them. */
export function filterKey(key) {
  if (key === "Escape" && table.filter) {
    clear();
    refresh();
  } else if (key === "Escape") $("filter").blur();
  else if (key === "Enter" || key === "ArrowDown") {
    $("filter").blur();
    $("grid").focus();
    mark(1);
  } else return false;
  return true;
}
