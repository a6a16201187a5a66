// Elements: made once, and changed only where something has changed.

import { isOld, now, state } from "./state.js";
import { brief, period, shown, span } from "./words.js";

export const $ = (id) => document.getElementById(id);

/** An element with a class and children; empty ones are left out. */
export function h(tag, name = "", ...inside) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...inside.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

export function button(name, text, press) {
  const element = h("button", name, text);
  element.type = "button";
  element.onclick = press;
  return element;
}

export function set(element, text) {
  if (element.given !== text) element.textContent = element.given = text;
}

/** Set the text of others, which may be long. */
export function setShown(element, text) {
  if (element.given === text) return;
  element.given = text;
  element.replaceChildren(shown(text));
  element.title = text.length > 200 ? `${text.slice(0, 200)}…` : text;
}

/** Replace the children if the key has changed. */
export function fill(element, key, make) {
  if (element.key === key) return;
  element.key = key;
  element.replaceChildren(...make().filter((child) => child !== null && child !== ""));
}

/** Fill a list, so that an element stays for as long as its key does, and the focus with it. */
export function list(parent, items, keyOf, make, update = () => {}) {
  const before = parent.byKey ?? new Map();
  const after = new Map();
  const keyed = new Map(items.map((item) => [keyOf(item), item]));
  for (const [key, element] of before) if (!keyed.has(key)) element.remove();
  let place = parent.firstElementChild;
  for (const [key, item] of keyed) {
    const element = before.get(key) ?? make(item);
    after.set(key, element);
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  parent.byKey = after;
}

const counted = ({ dataset: { since, until } }) => span(since ? now() - since : until - now());

/** A duration that counts: since a moment, or until it. */
export function timer(at, name = "") {
  const element = h("span", name);
  setTimer(element, at);
  return element;
}

export function setTimer(element, at) {
  const way = at > now() ? "until" : "since";
  const { since, until } = element.dataset;
  if (Number(since ?? until) !== at) {
    delete element.dataset.since;
    delete element.dataset.until;
    element.dataset[way] = at;
  }
  set(element, counted(element));
}

/** A part of a sentence of the server: text, a name, the label of a client, a moment, or a length of time. */
export function drawn(part) {
  if (typeof part === "string") return part;
  if ("name" in part) return h("b", "name", shown(part.name));
  if ("label" in part) return shown(part.label);
  if ("length" in part) return brief(part.length);
  return "period" in part ? period(part.period) : timer(part.at);
}

/** A sentence of the server, which begins with a capital. */
export function says(parts) {
  const [first, ...rest] = parts;
  if (typeof first !== "string") return parts.map(drawn);
  return [first.slice(0, 1).toUpperCase() + first.slice(1), ...rest.map(drawn)];
}

/** Let all durations in sight count. */
export function tick() {
  for (const element of document.querySelectorAll("section:not([hidden]) :is([data-since], [data-until])")) {
    set(element, counted(element));
  }
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag, attributes, ...inside) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...inside);
  return element;
}

/** The form says how bad it is, too, not the color alone. */
const SIGNS = {
  urgent: ["M7 2h6l5 5v6l-5 5H7l-5-5V7z", "M10 6v5M10 14v.1", "Serious: "],
  warning: ["M10 2.5 18.5 17h-17z", "M10 8v4M10 14.5v.1", "Warning: "],
  note: ["M10 2a8 8 0 1 1 0 16 8 8 0 0 1 0-16z", "M10 9v5M10 6v.1", "Note: "],
  fine: ["M10 2a8 8 0 1 1 0 16 8 8 0 0 1 0-16z", "M6.5 10.2l2.4 2.4 4.6-5", "Fine: "],
};

export function sign(level) {
  const [edge, inside] = SIGNS[level];
  const paths = [["area", edge], ["edge", edge], ["edge", inside]].map(([name, d]) => svg("path", { class: name, d }));
  return svg("svg", { class: `sign ${level}`, viewBox: "0 0 20 20", "aria-hidden": "true" }, ...paths);
}

/** The level in a word, for those who do not see the sign. */
export const spoken = (level) => h("span", "hidden-text", SIGNS[level][2]);

/** A link to a name, and to a view. */
export const nameLink = (kind, name) => `#/name/${kind}/${encodeURIComponent(name)}`;

let toasting = 0;

/** Show a message for a while, above a dialog too. */
export function toast(text) {
  const box = $("toast");
  if (box.matches(":popover-open")) box.hidePopover();
  box.textContent = text;
  box.showPopover();
  clearTimeout(toasting);
  toasting = setTimeout(() => box.hidePopover(), text.length > 40 ? 12000 : 4000);
}

/** A command to copy; see `setShell`. */
export function shell(command) {
  const code = h("code");
  const copy = button("button small", "Copy", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      toast("Copied");
    } catch {
      toast("The browser does not let the page copy: mark the text");
    }
  });
  const element = h("div", "shell", code, copy);
  setShell(element, command);
  return element;
}

export function setShell(element, command) {
  set(element.firstChild, command);
  element.lastChild.setAttribute("aria-label", `Copy ${command}`);
}

/** Why an act is not possible now; empty if it is. */
export function obstacle(act) {
  if (isOld()) return "Nothing can be done while the server does not answer.";
  if (state.me.may.includes(act)) return "";
  return state.me.may.length ? `This page may not ${act}.` : "This page only looks: it was started without --allow.";
}
