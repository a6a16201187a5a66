// The frame of the page: views, the strip, keys and themes.

import * as acts from "./acts.js";
import * as doctor from "./doctor.js";
import { $, fill, h, set, tick } from "./elements.js";
import * as held from "./held.js";
import * as limits from "./limits.js";
import * as name from "./name.js";
import * as operators from "./operators.js";
import * as overview from "./overview.js";
import * as results from "./results.js";
import { follow, freeze, isOld, look, outageFor, state } from "./state.js";
import { count, plain, shown, span, time } from "./words.js";

const VIEWS = { overview, held, limits, results, doctor, operators };
const TITLES = {
  overview: "Overview", held: "Names", limits: "Limits", results: "Results", doctor: "Server", operators: "Operators",
};

let view = "overview";
let focus = null; // the limiter, or the name of `once`, that a link has led to

// --- views

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Show the view that the address names: #/held, #/limits/<name>, #/name/<kind>/<name>. */
function route() {
  const [, first = "", second = "", ...rest] = location.hash.split("/");
  view = first === "name" ? "name" : Object.hasOwn(VIEWS, first) ? first : "overview";
  focus = view !== "name" && second ? decoded(second) : null;
  for (const section of document.querySelectorAll("[data-section]")) section.hidden = section.dataset.section !== view;
  const tab = view === "name" ? "held" : view;
  for (const link of $("views").children) {
    if (link.dataset.view !== tab) link.removeAttribute("aria-current");
    else link.setAttribute("aria-current", "page");
  }
  showTab();
  const open = view === "name" ? { kind: second, name: decoded(rest.join("/")) } : null;
  if (JSON.stringify(open) !== JSON.stringify(state.open)) look(open);
  document.title = `${open ? plain(open.name) : TITLES[view]} · Handfast`;
  overview.marked.id = null;
  if (view === "held") held.enter();
  else {
    if (view === "name") name.enter();
    scrollTo(0, 0);
  }
  paint();
}

function paint() {
  paintBadges();
  paintStrip();
  paintOutage();
  document.body.classList.toggle("old", isOld());
  if (view === "name") name.paint();
  else VIEWS[view].paint(focus);
  tick();
}

function paintBadges() {
  const badges = {
    overview: overview.badge(), limits: [limits.badge(), "warning"], results: [results.badge(), "warning"], doctor: doctor.badge(),
  };
  let isChanged = false;
  for (const [which, [number, level]] of Object.entries(badges)) {
    const badge = document.querySelector(`[data-view="${which}"] b`);
    const text = number ? count(number) : "";
    isChanged ||= badge.textContent !== text;
    set(badge, text);
    if (badge.className !== level) badge.className = level;
  }
  if (isChanged) showTab(); // a number has moved the tabs
}

/** Scroll the tab of the open view into view. */
function showTab() {
  const link = document.querySelector("#views [aria-current]");
  if (link) $("views").scrollTo(link.offsetLeft - 90, 0);
}

// --- the strip, and outages

function mode() {
  if (state.isFrozen) return [`Frozen at ${time(state.at)}`, "frozen"];
  if (state.lost) return ["No page server", "off"];
  if (state.outage) return [state.outage.server ? "Server gone" : "Cannot look", "off"];
  return state.number ? ["Live", ""] : ["Connecting", "waits"];
}

function paintStrip() {
  const [text, level] = mode();
  set($("live"), text);
  $("freeze").setAttribute("aria-pressed", String(state.isFrozen));
  $("live").className = `live ${level}`;
  if (state.me.server) set($("where"), `${state.me.server} · ${state.me.namespace}`);
  if (state.sum) $("live").title = `A look took ${count(state.sum.took)} ms`;
}

function paintOutage() {
  const { lost, outage } = state;
  $("outage").hidden = state.isFrozen || !(lost || outage);
  if ($("outage").hidden) return set($("outage-says"), "");
  const seen = state.at ? `What you see is from ${time(state.at)}. ` : "Nothing has been seen yet. ";
  const [says, error, then] = lost ? [lost.error || "The server of this page does not answer.", "", "The page goes on asking. Leases and queues do not depend on it."]
    : outage.server ? ["Redis or Valkey has not answered", outage.error, "No lease is granted or renewed meanwhile; each ends when its time is over, and its holder learns of it."]
    : ["The page has not been able to look", outage.error, "This says nothing about Redis or Valkey, nor about leases."];
  set($("outage-says"), says); // it is spoken once, as it does not change
  fill($("outage-why"), `${error} ${seen}`, () => [h("span", "then", `${seen}${then}`), ...(error ? [h("small", "", shown(error))] : [])]);
  countOutage();
}

function countOutage() {
  set($("outage-for"), state.outage && !state.lost ? `for ${span(outageFor())}.` : "");
}

// --- freeze and themes

function setFrozen(isFrozen) {
  freeze(isFrozen);
  paint();
}

const THEMES = { system: "◐", light: "○", dark: "●" };
const stored = {
  get: () => { try { return localStorage.getItem("handfast-theme"); } catch { return null; } },
  set: (theme) => { try { localStorage.setItem("handfast-theme", theme); } catch { /* it is kept until the page is closed */ } },
};

let theme = "system";
function setTheme(next) {
  theme = next in THEMES ? next : "system";
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  set($("theme"), THEMES[theme]);
  $("theme").setAttribute("aria-label", `Theme: ${theme}`);
  stored.set(theme);
}

function nextTheme() {
  const all = Object.keys(THEMES);
  setTheme(all[(all.indexOf(theme) + 1) % all.length]);
}

// --- keys

const MOVES = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -1e9, End: 1e9 };

function move(event) {
  const isArrow = event.key.length > 1; // arrows scroll, unless the table has the focus
  if (isArrow && !(view === "held" && document.activeElement === $("grid"))) return false;
  VIEWS[view]?.mark?.(MOVES[event.key]);
  return true;
}

function goBack() {
  if (view === "name") location.hash = "#/held";
  else if (view === "held") return held.goBack();
  else if (view === "overview" && overview.marked.id) {
    overview.marked.id = null;
    paint();
  } else if (focus) location.hash = `#/${view}`;
  else return false;
  return true;
}

const KEYS = {
  "/": () => {
    location.hash = "#/held";
    route(); // at once: what is hidden cannot be focused
    $("filter").focus();
  },
  "?": () => $("keys").showModal(),
  t: nextTheme,
  f: () => setFrozen(!state.isFrozen),
  Enter: () => VIEWS[view]?.open?.() ?? false,
  Escape: goBack,
  r: () => view === "name" && name.ask("release"),
  h: () => view === "name" && name.ask("hold"),
};

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target === $("filter")) {
    if (held.filterKey(event.key)) event.preventDefault();
    return;
  }
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === "Enter" && event.target.closest("button, a")) return;
  if (perform(event)) event.preventDefault();
}

/** Do what a key stands for. Return whether it did anything. */
function perform(event) {
  const to = Object.keys(VIEWS)[Number(event.key) - 1];
  if (to) {
    location.hash = to === "overview" ? "#/" : `#/${to}`;
    return true;
  }
  if (event.key in MOVES) return move(event);
  return event.key in KEYS && KEYS[event.key]() !== false;
}

// --- begin

acts.listen();
name.listen();
held.listen(() => view === "held");
$("theme").onclick = nextTheme;
$("freeze").onclick = () => setFrozen(!state.isFrozen);
$("skip").onclick = (event) => {
  event.preventDefault();
  $("main").focus();
};
$("help").onclick = () => $("keys").showModal();
addEventListener("hashchange", route);
addEventListener("resize", paint);
addEventListener("keydown", press);
setTheme(stored.get());
route();
follow(paint);
setInterval(() => {
  if (!isOld() && !state.isFrozen) tick();
  if (!state.isFrozen) countOutage();
}, 1000);
