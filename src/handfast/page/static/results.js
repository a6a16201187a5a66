// What `once` has recorded: those first that failed, or that began and did not end.

import { act, command } from "./acts.js";
import { $, button, h, list, nameLink, obstacle, set, setShown, setTimer, timer } from "./elements.js";
import { paintOnly } from "./limits.js";
import { kindOf, state } from "./state.js";
import { count, many, shown } from "./words.js";

const STATES = {
  failed: "failed", left: "began, did not end", unstored: "done, not stored", running: "running", done: "done",
};
const SHOWN = 200;

/** Those that someone has to look at. */
const NEEDS = "needs";
const isNeedy = (record) => record.state === "failed" || record.state === "left";

let chosen = NEEDS;

const number = (counts, key) => counts[key] ?? 0;
const groups = () => Object.entries(state.results.counts);

/** The name before the first `|` without a backslash before it. */
const withoutKey = (name) => /^(?:[^|\\]|\\.)*/.exec(name)[0];

const needy = (counts) => number(counts, "failed") + number(counts, "left");

/** How many keys need a look. */
export const badge = () => groups().reduce((sum, [, counts]) => sum + needy(counts), 0);

/** The records, and the runs of keys that have none. */
function keys() {
  const recorded = new Set(state.results.rows.map((record) => record.key));
  const running = [...state.rows.values()]
    .filter((row) => kindOf(row).records && row.holding && !recorded.has(row.name))
    .map((row) => ({ kind: row.kind, name: withoutKey(row.name), key: row.name, state: "running", at: row.since, why: "", version: "" }));
  return [...state.results.rows.filter((record) => record.state !== "done"), ...running, ...state.results.rows.filter((record) => record.state === "done")];
}

let narrowed = null;

export function paint(focus = narrowed) {
  narrowed = focus;
  const all = keys().filter((record) => !focus || record.name === focus);
  const names = groups().filter(([name]) => !focus || name === focus);
  paintOnly("results", focus, all.length);
  $("once-empty").hidden = all.length > 0 || Boolean(focus || state.results.refused);
  $("once-table").hidden = $("once-tools").hidden = !all.length;
  names.sort(([a, x], [b, y]) => needy(y) - needy(x) || a.localeCompare(b));
  paintNames(names);
  paintStates(all);
  const some = all.filter((record) => isOf(chosen, record));
  list($("once-rows"), some.slice(0, SHOWN), (record) => `${record.key} ${record.state} ${record.version}`, makeRow, fillRow);
  set($("once-matches"), many(some.length, "key"));
  const left = Object.values(state.results.totals).reduce((sum, each) => sum + each, 0) - state.results.rows.length;
  set($("once-more"), state.results.refused ? `The records are not read: ${state.results.refused}`
    : some.length > SHOWN ? `The first ${SHOWN} of ${count(some.length)}; choose a state above to see fewer.`
    : left > 0 ? `There are about ${count(left)} more records: of keys that are done, or that were not read.` : "");
}

const isOf = (which, record) => which === "all" || (which === NEEDS ? isNeedy(record) : record.state === which);

function paintNames(names) {
  const make = ([name]) => h("article", "card", h("b", "mono", shown(name)), h("div", "stack"), h("div", "counts"));
  list($("once-names"), names.slice(0, 60), ([name]) => name, make, (card, [name, counts]) => {
    const some = Object.keys(STATES).filter((key) => counts[key]);
    list(card.children[1], some, (key) => key, (key) => h("i", `s-${key}`), (part, key) => { part.style.flexGrow = counts[key]; });
    list(card.children[2], some, (key) => key, (key) => h("span", "", h("i", `s-${key}`), h("span")), (item, key) => {
      set(item.lastChild, `${count(counts[key])} ${STATES[key]}`);
    });
  });
}

function paintStates(all) {
  const some = [NEEDS, ...Object.keys(STATES)].filter((key) => all.some((record) => isOf(key, record)));
  if (!some.includes(chosen)) chosen = "all";
  const word = (key) => (key === "all" ? "All" : key === NEEDS ? "Needs a look" : STATES[key][0].toUpperCase() + STATES[key].slice(1));
  const make = (key) => button("chip", h("span", "", word(key)), () => {
    chosen = key;
    paint();
  });
  list($("states"), [...some.slice(0, 1), "all", ...some.slice(1)], (key) => key, make, (chip, key) => {
    chip.setAttribute("aria-pressed", String(chosen === key));
    if (!chip.children[1]) chip.append(" ", h("b"));
    set(chip.children[1], key === "all" ? "" : count(all.filter((record) => isOf(key, record)).length));
  });
}

function makeRow(record) {
  const mark = h("span", "state", h("i", `s-${record.state}`), STATES[record.state]);
  const link = h("a", "link mono", shown(record.key));
  link.href = nameLink("once", record.key);
  const forget = button("quiet", "Forget …", () => act("forget", { kind: "once", name: record.key, version: record.version }));
  return h("tr", "", h("td", "", mark), h("td", "label", link), h("td", "num", timer(record.at)), h("td", "label"), h("td", "num"), h("td", "label soft", record.why ? shown(record.why) : ""), h("td", "num", forget));
}

function fillRow(element, record) {
  const row = state.rows.get(`once/${record.key}`);
  const [, , since, by, waiting, , forget] = element.children;
  setTimer(since.firstChild, record.at);
  if (row?.holding) setShown(by, row.by ?? "");
  else set(by, "");
  set(waiting, row?.waiting ? count(row.waiting) : "");
  forget.firstChild.hidden = record.state === "running";
  const why = obstacle("forget");
  forget.firstChild.disabled = Boolean(why);
  forget.firstChild.title = why && `${why} In a shell: ${command("forget", { kind: "once", name: record.key })}`;
}
