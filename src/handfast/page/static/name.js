// One name: a sentence, its holders, its queue, what is remembered, and what an operator can do.

import { act, command } from "./acts.js";
import { $, fill, h, list, obstacle, set, setShell, setTimer, shell, timer } from "./elements.js";
import { holderText } from "./held.js";
import { bar, drawBar, drawQueue, drawSpark, leaseLevel, permits, queue, spark } from "./pictures.js";
import { now, state } from "./state.js";
import { brief, count, day, many, shown, span } from "./words.js";

const HELD_KINDS = ["lock", "semaphore", "rwlock", "election", "once"]; // those that can be put on hold
const UNHELD_KINDS = ["limiter", "debounce", "latch"]; // those without leases
const SPARK = [338, 56];

export function enter() {
  $("name-title").replaceChildren(shown(state.open.name));
  set($("name-kind"), state.open.kind);
  for (const id of ["name-picture", "name-spark"]) $(id).replaceChildren();
  paint();
}

/** The row, with a queue as long as the list of waiters. */
function rowOf({ kind, name }, details) {
  const row = state.rows.get(`${kind}/${name}`);
  if (!row || !details?.waiters) return row;
  const flags = ({ as, heard }) => (as === "reader" ? 1 : 0) | (heard ? 2 : 0);
  return { ...row, queue: details.waiters.length ? details.waiters.map((waiter) => [waiter.since, flags(waiter)]) : null };
}

export function paint() {
  const { open, details } = state;
  const row = rowOf(open, details);
  const { queue: _queue, spark: _spark, ends: _ends, ...told } = row ?? {};
  fill($("name-says"), JSON.stringify([state.sum?.whole, Boolean(row), told]), () => says(row));
  const holders = details?.holders ?? [];
  paintHold(row);
  paintHolders(row, holders);
  paintQueue(row, details?.waiters ?? []);
  paintMinutes(row);
  paintFacts(row, details?.remembered);
  paintActs(open, row, holders);
  paintPast(open, details?.last);
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
  if (!row.holding) return [h("b", "", row.kind === "latch" ? holderText(row) : "Free"), ...waits];
  const since = row.since ? [row.holding > 1 ? ", the first for " : " for ", timer(row.since)] : [];
  if (row.limit) return [h("b", "", permits(row)), ...since, ...waits];
  const who = row.holding > 1 ? `${count(row.holding)} holders` : shown(row.by ?? "");
  return [h("b", "", "Held by ", who), ...since, ...waits];
}

function paintHold(row) {
  $("name-hold").hidden = !row?.hold;
  if (!row?.hold) return;
  fill($("name-hold"), JSON.stringify([row.hold, row.lifts]), () => [
    h("h2", "", "On hold by ", shown(row.hold.by), h("span", "", " for ", timer(row.lifts), ` more, until ${day(row.lifts)}`)),
    h("div", "", "“", shown(row.hold.why), "”"),
  ]);
}

function paintHolders(row, holders) {
  set($("holders-head"), row?.limit ? `Held, ${row.out ?? 0} of ${count(row.limit)}` : "Held by");
  const more = (row?.holding ?? 0) - holders.length;
  set($("holders-more"), !row?.holding ? "No one." : more > 0 && holders.length ? `${count(more)} more` : "");
  list($("holders"), holders, (holder) => holder.token, (holder) => {
    const lease = h("div", "lease", bar(), h("span"));
    const detail = h("div", "detail", h("span", "mono", `fence ${holder.fence}`), ` · since ${day(holder.since)} · lease ${holder.token}`);
    return h("div", "holder", h("div", "label", shown(holder.label)), h("div", "for", timer(holder.since)), lease, detail);
  }, (element, holder) => {
    const [label, , lease] = element.children;
    const left = holder.ends - now();
    drawBar(lease.firstChild, left / holder.ttl, leaseLevel(left, holder.ttl, holder.released));
    set(lease.lastChild, left < 0 ? "…" : holder.released ? `kept for ${span(left)} more` : `ends in ${span(left)} unless renewed`);
    fill(label, JSON.stringify([holder.as, holder.released, holder.slot, holder.value, holder.until]), () => [shown(holder.label), ...tags(holder)]);
  });
}

function tags(holder) {
  const words = [];
  if (holder.as) words.push(h("span", "tag", holder.as));
  if (holder.slot !== null) words.push(h("span", "tag", `slot ${holder.slot}`));
  if (holder.released) words.push(h("span", "tag", "released"));
  if (holder.until) words.push(h("span", "tag warning", "is to end in ", timer(holder.until)));
  if (holder.value) words.push(h("span", "tag", shown(holder.value)));
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
  const hasRoles = waiters.some((waiter) => waiter.as);
  $("waiters").classList.toggle("without-roles", !hasRoles);
  list($("waiters").tBodies[0], waiters, (waiter) => waiter.token, (waiter) => {
    const who = h("td", "label", shown(waiter.label), waiter.value ? " " : "", waiter.value ? h("span", "tag", shown(waiter.value)) : "", " ", h("span", "tag urgent"));
    return h("tr", "", h("td", "num soft"), who, h("td", "soft", waiter.as), h("td", "num", timer(waiter.since)));
  }, (element, waiter) => {
    const [place, who, , wait] = element.children;
    set(place, String(waiters.indexOf(waiter) + 1));
    who.lastChild.hidden = !waiter.heard;
    if (waiter.heard) set(who.lastChild, `silent for ${span(now() - waiter.heard)}`);
    setTimer(wait.firstChild, waiter.since);
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
    box.firstChild.setAttribute("preserveAspectRatio", "none");
  }
  const most = Math.max(0, ...samples);
  set($("name-spark-says"), samples.length > 1 ? `${count(row.waiting ?? 0)} now, ${count(most)} at most` : "Recorded since the first waiter.");
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
const latest = (holders) => Math.max(...holders.map((holder) => holder.fence));

/** Why nothing can be released now; empty if a lease can be. */
function releaseObstacle(row, holders) {
  if (row && !("holding" in row) && !HELD_KINDS.includes(row.kind)) return "A name of this kind has no leases.";
  return obstacle("release") || (holders.length && latest(holders) ? "" : "There is no lease to release.");
}

function paintActs(open, row, holders) {
  const [release, hold, forget] = [$("act-release"), $("act-hold"), $("act-forget")];
  const [hasLeases, canHold, canForget] = [!UNHELD_KINDS.includes(open.kind), HELD_KINDS.includes(open.kind), open.kind === "latch"];
  const [noRelease, noHold] = [releaseObstacle(row, holders), obstacle("hold")];
  const noForget = obstacle("forget") || (state.details?.version ? "" : "No part is done.");
  release.disabled = Boolean(noRelease);
  hold.disabled = Boolean(noHold);
  forget.disabled = Boolean(noForget);
  release.hidden = !hasLeases;
  hold.hidden = !canHold;
  forget.hidden = !canForget;
  set(hold, row?.hold ? "End the hold …" : "Put on hold …");
  const why = [...new Set([hasLeases ? noRelease : "", canHold ? noHold : "", canForget ? noForget : ""])].filter(Boolean);
  const isIdle = !hasLeases && !canForget;
  set($("act-note"), isIdle ? "Nothing can be done here." : why.length ? why.join(" ") : "Each asks for a reason first.");
  const isReleasable = holders.length > 0 && latest(holders) > 0;
  set($("act-shell-head"), isReleasable ? "The same in a shell:" : "In a shell:");
  const text = canForget && !noForget ? command("forget", open) : isReleasable ? command("release", { ...open, fence: latest(holders) }) : command("show", open);
  if ($("act-shell").firstChild) setShell($("act-shell").firstChild, text);
  else $("act-shell").append(shell(text));
}

/** Ask for a release, for a hold or its end, or to forget. */
export function ask(what) {
  const { open, details } = state;
  const row = state.rows.get(`${open.kind}/${open.name}`);
  if (what === "release" && !$("act-release").disabled) {
    const { holders, waiters } = details;
    const numbers = { holding: Math.max(holders.length, row?.holding ?? 0), waiting: row?.waiting ?? 0 };
    act("release", { ...open, ...numbers, holders, waiters, fence: latest(holders) });
  } else if (what === "hold" && !$("act-hold").disabled && !$("act-hold").hidden) {
    act(row?.hold ? "unhold" : "hold", { ...open, hold_id: row?.hold_id, waiting: row?.waiting ?? 0 });
  } else if (what === "forget" && !$("act-forget").disabled && !$("act-forget").hidden) {
    act("forget", { ...open, version: details.version });
  }
}

const DONE = {
  force_release: "released it by force", release: "released it by force", hold: "put it on hold", unhold: "ended the hold",
  pause: "paused it", resume: "resumed it", resize: "set the limit", reset: "reset it", forget: "forgot it",
  preempt: "took it with a later request",
};

function paintPast(open, last) {
  const { entries, refused } = state.audit;
  const its = entries.filter((entry) => entry.kind === open.kind && entry.name === open.name);
  const isNoted = last && its.some((entry) => Math.abs(entry.at - last.at) < 5);
  const past = last && !isNoted ? [{ id: `last ${last.at}`, ...last }, ...its].sort((a, b) => b.at - a.at) : its;
  $("name-past-empty").hidden = past.length > 0;
  set($("name-past-empty"), refused ? `The audit is not read: ${refused}` : "Nothing that is remembered.");
  list($("name-past"), past.slice(0, 50), (entry) => entry.id, (entry) => {
    const why = !entry.why ? [] : entry.what === "resize" ? [` · ${entry.why}`] : [" · “", shown(entry.why), "”"];
    return h("li", "", h("b", "", shown(entry.by)), ` ${DONE[entry.what] ?? entry.what}`, h("span", "", day(entry.at), ...why));
  });
}

export function listen() {
  $("act-release").onclick = () => ask("release");
  $("act-hold").onclick = () => ask("hold");
  $("act-forget").onclick = () => ask("forget");
}
