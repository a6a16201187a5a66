// One name: a sentence, its holders, its queue, what is remembered, and what an operator can do.

import { act, command } from "./acts.js";
import { $, fill, h, list, set, setTimer, shell, timer } from "./elements.js";
import { holderText } from "./held.js";
import { bar, drawBar, drawQueue, drawSpark, leaseLevel, permits, queue, spark } from "./pictures.js";
import { may, now, state } from "./state.js";
import { brief, count, day, many, shown, span, time } from "./words.js";

const HELD_KINDS = ["lock", "semaphore", "rwlock", "election", "once"]; // those that can be put on hold
const SPARK = [338, 56];

export function enter() {
  $("name-title").replaceChildren(shown(state.open.name));
  set($("name-kind"), state.open.kind);
  for (const id of ["name-picture", "name-spark"]) $(id).replaceChildren();
  paint();
}

/** The row, with a queue as long as the list of waiters. */
function rowOf({ kind, name }, one) {
  const row = state.rows.get(`${kind}/${name}`);
  if (!row || !one?.waiters) return row;
  const flags = ({ as, heard }) => (as === "reader" ? 1 : 0) | (heard ? 2 : 0);
  return { ...row, queue: one.waiters.length ? one.waiters.map((waiter) => [waiter.since, flags(waiter)]) : null };
}

export function paint() {
  const { open, one } = state;
  const row = rowOf(open, one);
  fill($("name-says"), JSON.stringify([Boolean(state.sum), row && [row.hold, row.by, row.since, row.out, row.holding, row.waiting, row.first, row.due, row.done]]), () => says(row));
  const holders = one?.holders ?? [];
  paintHold(row);
  paintHolders(row, holders);
  paintQueue(row, one?.waiters ?? []);
  paintMinutes(row);
  paintFacts(row, one?.remembered);
  paintActs(open, row, holders);
  paintPast(open, one?.last);
}

function says(row) {
  if (!row) return [state.sum?.whole ? "The server does not know this name any more, or not yet." : "Looking …"];
  const waits = row.waiting
    ? [`; ${count(row.waiting)} waiting`, ...(row.first ? [", the first for ", timer(row.first)] : []), "."]
    : ["; none waiting."];
  if (row.hold) {
    const left = row.holding ? `${many(row.holding, "lease")} from before may end; no one else gets in` : "No one gets in";
    return [h("b", "", "On hold. "), left, ...waits];
  }
  if (row.kind === "debounce") return row.due ? ["The newest call runs in ", timer(row.due), "."] : ["No call waits."];
  if (!row.since) return [h("b", "", row.kind === "latch" ? holderText(row) : "Free"), ...waits];
  const isMany = row.limit || row.holding > 1;
  const head = row.limit ? permits(row) : isMany ? `Held by ${count(row.holding)}` : "Held by ";
  return [h("b", "", head, isMany ? "" : shown(row.by)), " for ", timer(row.since), ...waits];
}

function paintHold(row) {
  $("name-hold").hidden = !row?.hold;
  if (!row?.hold) return;
  fill($("name-hold"), JSON.stringify([row.hold, row.lifts]), () => [
    h("h2", "", "On hold by ", shown(row.hold.by), h("span", "", " for ", timer(row.lifts), ` more, until ${time(row.lifts)}`)),
    h("div", "", "“", shown(row.hold.why), "”"),
  ]);
}

function paintHolders(row, holders) {
  set($("holders-head"), row?.limit ? `Held, ${row.out ?? 0} of ${count(row.limit)}` : "Held by");
  $("holders-empty").hidden = holders.length > 0 || Boolean(row?.holding);
  list($("holders"), holders, (one) => one.token, (one) => {
    const lease = h("div", "lease", bar(), h("span"));
    const detail = h("div", "detail", h("span", "mono", `fence ${one.fence}`), ` · since ${day(one.since)} · lease ${one.token}`);
    return h("div", "holder", h("div", "label", shown(one.label)), h("div", "for", timer(one.since)), lease, detail);
  }, (element, one) => {
    const [label, , lease] = element.children;
    const left = one.ends - now();
    drawBar(lease.firstChild, left / one.ttl, leaseLevel(left, one.ttl, one.released));
    set(lease.lastChild, one.released ? `kept for ${span(left)} more` : `ends in ${span(left)} unless renewed`);
    fill(label, JSON.stringify([one.as, one.released, one.slot, one.value, one.until]), () => [shown(one.label), ...tags(one)]);
  });
}

function tags(one) {
  const words = [];
  if (one.as) words.push(h("span", "tag", one.as));
  if (one.slot !== null) words.push(h("span", "tag", `slot ${one.slot}`));
  if (one.released) words.push(h("span", "tag", "released"));
  if (one.until) words.push(h("span", "tag warning", "is to end in ", timer(one.until)));
  if (one.value) words.push(h("span", "tag", shown(one.value)));
  return words.flatMap((word) => [" ", word]);
}

function paintQueue(row, waiters) {
  const length = row?.waiting ?? 0;
  set($("waiters-head"), length ? `Queue, ${count(length)}` : "Queue");
  const box = $("name-picture");
  box.hidden = length < 2 || !row?.queue;
  const width = Math.max(200, box.parentElement.clientWidth - 32);
  if (!box.hidden) {
    if (box.firstChild) drawQueue(box.firstChild, row, width, 44);
    else box.append(queue(row, width, 44));
  }
  $("waiters").hidden = !waiters.length;
  const hasRoles = waiters.some((one) => one.as);
  $("waiters").classList.toggle("without-roles", !hasRoles);
  list($("waiters").tBodies[0], waiters, (one) => one.token, (one) => {
    const who = h("td", "label", shown(one.label), one.value ? " " : "", one.value ? h("span", "tag", shown(one.value)) : "", " ", h("span", "tag urgent"));
    return h("tr", "", h("td", "num soft"), who, h("td", "soft", one.as), h("td", "num", timer(one.since)));
  }, (element, one) => {
    const [place, who, , wait] = element.children;
    set(place, String(waiters.indexOf(one) + 1));
    who.lastChild.hidden = !one.heard;
    if (one.heard) set(who.lastChild, `silent for ${span(now() - one.heard)}`);
    setTimer(wait.firstChild, one.since);
  });
  const more = length - waiters.length;
  set($("waiters-more"), !length ? "None wait." : more > 0 && waiters.length ? `${count(more)} more behind them` : "");
}

function paintMinutes(row) {
  const samples = row?.spark ?? [];
  const box = $("name-spark");
  if (box.firstChild) drawSpark(box.firstChild, samples, ...SPARK);
  else {
    box.append(spark(samples, ...SPARK));
    box.firstChild.setAttribute("width", "100%");
  }
  const most = Math.max(0, ...samples);
  set($("name-spark-says"), samples.length > 1 ? `${count(row.waiting ?? 0)} now, ${count(most)} at most` : "Noted from the first waiter on.");
}

function paintFacts(row, remembered) {
  const { fence, grants, mean, permits: most } = remembered ?? {};
  const facts = [
    ["Fence of the latest grant", fence ? String(fence) : "–"],
    ["Grants a second", (row?.rate ?? 0).toFixed(1)],
    ["Grants remembered", grants ? count(grants) : "–"],
    ["Mean wait", mean ?? null ? brief(mean) : "–"],
    ...(most ? [["Permits", count(most)]] : []),
  ];
  const pairs = facts.flatMap(([what, value]) => [["dt", what, what], ["dd", what, value]]);
  list($("name-facts"), pairs, ([tag, what]) => tag + what, ([tag, what]) => h(tag, tag === "dd" && what.startsWith("Fence") ? "mono" : ""), (element, [, , text]) => set(element, text));
}

/** The fence up to which leases are taken: the largest that is shown. */
const latest = (holders) => Math.max(...holders.map((one) => one.fence));

function paintActs(open, row, holders) {
  const [release, hold] = [$("act-release"), $("act-hold")];
  const canRelease = holders.length > 0;
  const canHold = HELD_KINDS.includes(open.kind);
  release.disabled = !may("release") || !canRelease;
  hold.disabled = !may("hold") || !canHold;
  hold.hidden = !canHold;
  set(hold, row?.hold ? "End the hold …" : "Put on hold …");
  const why = !state.me.may.length ? "This page only looks: it was started without --allow. In a shell:"
    : !canRelease && !canHold ? "A name of this kind has no leases. In a shell:"
    : "Both ask for a reason first. In a shell:";
  set($("act-note"), why);
  const text = canRelease ? command("release", { ...open, fence: latest(holders) }) : command("show", open);
  fill($("act-shell"), text, () => [shell(text)]);
}

/** Ask for a release, or for a hold or its end. */
export function ask(what) {
  const { open, one } = state;
  const row = state.rows.get(`${open.kind}/${open.name}`);
  if (what === "release" && !$("act-release").disabled) {
    act("release", { ...open, fence: latest(one.holders), holders: one.holders, waiters: one.waiters, waiting: row.waiting ?? 0 });
  } else if (what === "hold" && !$("act-hold").disabled) {
    act(row?.hold ? "unhold" : "hold", { ...open, waiting: row?.waiting ?? 0 });
  }
}

const DONE = { force_release: "took it away", release: "took it away", hold: "put it on hold", unhold: "ended the hold", resize: "set the limit", preempt: "a later request took it" };

function paintPast(open, last) {
  const its = state.audit.entries.filter((one) => one.kind === open.kind && one.name === open.name);
  const isNoted = last && its.some((one) => Math.abs(one.at - last.at) < 5);
  const past = last && !isNoted ? [{ id: `last ${last.at}`, ...last }, ...its].sort((a, b) => b.at - a.at) : its;
  $("name-past-empty").hidden = past.length > 0;
  list($("name-past"), past.slice(0, 50), (one) => one.id, (one) => {
    const why = one.why ? [" · “", shown(one.why), "”"] : [];
    return h("li", "", h("b", "", shown(one.by)), ` ${DONE[one.what] ?? one.what}`, h("span", "", day(one.at), ...why));
  });
}

export function listen() {
  $("act-release").onclick = () => ask("release");
  $("act-hold").onclick = () => ask("hold");
}
