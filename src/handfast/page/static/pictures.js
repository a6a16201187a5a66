// Pictures of queues, of the last minutes, and of what is left of a lease.

import { svg } from "./elements.js";
import { now, state } from "./state.js";
import { count, span } from "./words.js";

const READER = 1;
const SILENT = 2;
const HOUR_S = 3600;

const PARTS = ["scale", "free", "held", "reading", "hold", "gate", "waits", "reader", "silent"];

/** A queue as it stands: who holds left of the gate, then the waiters in their order, taller for longer. */
export function queue(row, width, height = 20) {
  const element = svg("svg", { class: "queue", height, role: "img" });
  for (const part of PARTS) element.append(svg("path", { class: part }));
  element.append((element.rest = svg("text", { y: height - 5 })));
  element.marks = height > SCALED_FROM ? MARKS.map(() => svg("text", {})) : [];
  element.append(...element.marks);
  drawQueue(element, row, width, height);
  return element;
}

const SCALED_FROM = 40; // pictures that are taller have lines for how long a wait is
const SCALE = 40; // the room for the words beside them
const MARKS = [[600, "10 m"], [60, "1 m"]];

function drawScale(paths, width, height) {
  return MARKS.map(([seconds, word]) => {
    const y = height - Math.round(4 + (height - 4) * share(seconds)) + 0.5;
    paths.scale += `M0 ${y}H${width - SCALE}`;
    return [y, word];
  });
}

const box = (x, y, w, tall) => `M${x} ${y}h${w}v${tall}h${-w}z`;

/** How full a bar is: by the logarithm of a wait, full after an hour. */
const share = (seconds) => Math.min(1, Math.log10(1 + Math.max(0, seconds)) / Math.log10(1 + HOUR_S));

const tall = (since, height) => Math.round(4 + (height - 4) * share(now() - since));

export function drawQueue(element, row, width, height = 20) {
  const paths = Object.fromEntries(PARTS.map((part) => [part, ""]));
  const marks = height > SCALED_FROM ? drawScale(paths, width, height) : [];
  let x = row.stop ? drawHold(paths, height) : 0;
  x = drawHolders(paths, row, x, height);
  const more = row.queue ? drawWaiters(paths, row, x, marks.length ? width - SCALE : width, height) : null;
  for (const [place, part] of PARTS.entries()) {
    const path = element.children[place];
    if (path.drawn !== paths[part]) path.setAttribute("d", (path.drawn = paths[part]));
  }
  for (const [place, [at, word]] of marks.entries()) {
    const text = element.marks[place];
    text.setAttribute("x", width - SCALE + 6);
    text.setAttribute("y", at + 4);
    text.textContent = word;
  }
  const text = element.rest;
  const says = more?.left > 0 ? `+${count(more.left)}` : "";
  if (text.textContent !== says) text.textContent = says;
  if (says && text.x0 !== more.x) text.setAttribute("x", (text.x0 = more.x));
  if (element.wide !== width) element.setAttribute("width", (element.wide = width));
  const told = described(row);
  if (element.told !== told) element.setAttribute("aria-label", (element.told = told));
}

function drawHold(paths, height) {
  paths.hold = box(0, 0, 5, height);
  return 8;
}

/** The permits of a semaphore, full and empty, or the holders. */
function drawHolders(paths, row, start, height) {
  const out = row.limit ? Math.min(row.out ?? 0, row.limit) : (row.holding ?? 0);
  const cells = row.limit ? Math.min(row.limit, 16) : Math.min(out, 8);
  const full = row.limit > 16 ? Math.round((out / row.limit) * 16) : out;
  const lines = cells > 4 ? 2 : 1;
  const top = (height - (lines * 9 - 2)) / 2;
  for (let place = 0; place < cells; place++) {
    const x = start + Math.floor(place / lines) * 9;
    const y = top + (place % lines) * 9;
    if (place >= full) paths.free += box(x + 0.5, y + 0.5, 6, 6);
    else if (row.shared) paths.reading += box(x + 0.75, y + 0.75, 5.5, 5.5);
    else paths.held += box(x, y, 7, 7);
  }
  return start + Math.ceil(cells / lines) * 9;
}

function drawWaiters(paths, row, start, width, height) {
  let x = Math.max(start + 3, 14);
  paths.gate = `M${x + 0.5} 0V${height}`;
  x += 5;
  const isLarge = height > SCALED_FROM;
  const gap = isLarge && row.waiting <= 60 ? 3 : isLarge ? 1 : 2;
  const w = isLarge ? Math.max(2, Math.min(14, Math.floor((width - x) / row.waiting) - gap)) : 4;
  const fits = (room) => Math.floor((room - x) / (w + gap));
  const shown = Math.min(row.queue.length, row.waiting > fits(width) ? fits(width - 30) : row.waiting);
  for (const [since, flags] of row.queue.slice(0, shown)) {
    const high = tall(since, height);
    if (flags & SILENT) paths.silent += box(x + 0.5, height - high + 0.5, w - 1, high - 1);
    else if (flags & READER) paths.reader += box(x + 0.6, height - high + 0.6, w - 1.2, high - 1.2);
    else paths.waits += box(x, height - high, w, high);
    x += w + gap;
  }
  return { left: row.waiting - shown, x: x + 2 };
}

/** The picture in words. */
function described(row) {
  const held = row.limit ? `${row.out ?? 0} of ${row.limit} permits held` : row.holding ? "held" : "free";
  const waiting = row.waiting ? `${count(row.waiting)} waiting` : "no one waits";
  return `${row.stop ? `${row.stop.what}, ` : ""}${held}, ${waiting}${row.silent ? `, ${row.silent} silent` : ""}`;
}

const SAMPLES = 60;
const SAMPLE_S = 5;

/** The length of a queue over the last five minutes. A sample keeps its width, so that the curve moves and does not stretch. */
export function spark(samples, width, height = 20) {
  const paths = ["base", "area", "edge"].map((name) => svg("path", { class: name }));
  const element = svg("svg", { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img" }, ...paths);
  drawSpark(element, samples, width, height);
  return element;
}

export function drawSpark(element, samples, width, height = 20, what = "waiting") {
  const most = Math.max(4, ...samples);
  const x = (place) => (width - (samples.length - 1 - place) * (width / (SAMPLES - 1))).toFixed(1);
  const y = (value) => (height - 1 - (value / most) * (height - 2)).toFixed(1);
  const line = samples.map((value, place) => `${place ? "L" : "M"}${x(place)} ${y(value)}`).join("");
  const [base, area, edge] = element.children;
  base.setAttribute("d", `M0 ${height - 0.5}H${width}`);
  edge.setAttribute("d", samples.length > 1 ? line : "");
  area.setAttribute("d", samples.length > 1 ? `${line}L${width} ${height}L${x(0)} ${height}z` : "");
  const range = samples.length ? `from ${count(Math.min(...samples))} to ${count(Math.max(...samples))}` : "none";
  element.setAttribute("aria-label", `${what} over the last ${span(samples.length * SAMPLE_S)}: ${range}`);
}

/** A bar that is full to a share. */
export function bar() {
  const element = document.createElement("div");
  element.className = "bar";
  element.append(document.createElement("i"));
  return element;
}

export function drawBar(element, share, level = "") {
  const scale = `scaleX(${Math.max(0, Math.min(1, share)).toFixed(3)})`;
  if (element.scale !== scale) element.firstChild.style.transform = element.scale = scale;
  const name = level ? `bar ${level}` : "bar";
  if (element.className !== name) element.className = name;
}

/**
 * How much of a lease is left. A lease is renewed three times in each ttl, so it never falls below two thirds of it; below a
 * half a renewal is late. A quiet name is looked at again when its lease seems to fall below that: until that look nothing is
 * known, and what is not known is no alarm.
 */
export function leaseLevel(left, ttl, isReleased) {
  if (isReleased) return "released";
  const { late_share: late, low_share: low, slack, short_ttl: short } = state.me.thresholds;
  if (left < 0 || ttl <= short) return "";
  return left < ttl * low - slack ? "low" : left < ttl * late - slack ? "near" : "";
}
