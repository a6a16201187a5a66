// One name: a sentence, its holders, its queue, what is remembered, and what an operator can do.

import { act, command } from "./acts.js";
import { $, button, fill, h, list, obstacle, says, set, setShell, setTimer, shell, timer } from "./elements.js";
import { bar, drawBar, drawQueue, drawSpark, leaseLevel, queue, spark } from "./pictures.js";
import { isOld, kindOf, now, state } from "./state.js";
import { brief, count, day, many, shown, span } from "./words.js";

const SPARK = [286, 56];
const LARGE = 64; // how tall the picture of the queue is

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
  const flags = ({ reader, heard }) => (reader ? 1 : 0) | (heard ? 2 : 0);
  return { ...row, queue: details.waiters.length ? details.waiters.map((waiter) => [waiter.since, flags(waiter)]) : null };
}

/** Whether nothing is known of the name yet, and nothing will be while the server does not answer. */
const isUnknown = () => state.details === undefined;

const unknown = () => (isOld() ? "Not known: the server does not answer." : "Looking …");

export function paint() {
  const { open, details } = state;
  const row = rowOf(open, details);
  const holders = details?.holders ?? [];
  const isGone = details === null;
  fill($("name-says"), JSON.stringify([details?.says, isGone, unknown()]), () => details ? says(details.says)
    : [isGone ? "The server does not know this name any more, or not yet." : unknown()]);
  list($("name-notes"), details?.notes ?? [], (note) => JSON.stringify(note), (note) => h("li", "", ...says(note)));
  paintHold(row);
  paintHolders(row, holders);
  paintQueue(row, details?.waiters ?? []);
  paintListings(details?.listings ?? []);
  paintMinutes(row);
  paintFacts(row, details?.remembered);
  paintActs(open, row, holders);
  paintPast(open, details?.last);
}

function paintHold(row) {
  const stop = row?.stop;
  $("name-hold").hidden = !stop;
  if (!stop) return;
  fill($("name-hold"), JSON.stringify(stop), () => [
    h("h2", "", `${stop.what.slice(0, 1).toUpperCase()}${stop.what.slice(1)} by `, shown(stop.by), h("span", "", " for ", timer(stop.until), ` more, until ${day(stop.until)}`)),
    stop.why && h("div", "", "“", shown(stop.why), "”"),
  ]);
}

function paintHolders(row, holders) {
  $("holders-card").hidden = !kindOf(state.open).leases;
  set($("holders-head"), row?.limit ? `Held, ${row.out ?? 0} of ${count(row.limit)}` : "Held by");
  const more = (row?.holding ?? 0) - holders.length;
  set($("holders-more"), isUnknown() ? unknown() : !row?.holding ? "No one holds it." : more > 0 ? `${count(more)} more` : "");
  const canReleaseOne = holders.length > 1 && kindOf(state.open).acts.includes("release");
  list($("holders"), holders, (holder) => holder.token, (holder) => {
    const detail = h("div", "detail", h("span", "mono", `fence ${holder.fence}`), ` · since ${day(holder.since)} · lease ${holder.token}`);
    const release = button("button small danger", "Release …", () => releaseOne(holder.token));
    return h("div", "holder", h("div", "label", shown(holder.label)), h("div", "for", timer(holder.since)), bar(), detail, h("div", "ends"), release);
  }, (element, holder) => {
    const [label, , lease, , ends, release] = element.children;
    release.hidden = !canReleaseOne;
    release.disabled = Boolean(obstacle("release"));
    release.setAttribute("aria-label", `Release the lease of ${holder.label}`);
    const left = holder.ends - now();
    drawBar(lease, left / holder.ttl, leaseLevel(left, holder.ttl, holder.released));
    set(ends, left < 0 ? "…" : holder.released ? `kept for ${span(left)} more` : `ends in ${span(left)} unless renewed`);
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

/** One row stands for waiters of which the server has no names. */
const NAMELESS = { token: "", label: null, as: "", value: "" };

const CLIENTS = 10; // that are listed
let isInOrder = false;

function paintQueue(row, waiters) {
  const length = row?.waiting ?? 0;
  $("waiters-card").hidden = kindOf(state.open).rates || (!length && !kindOf(state.open).leases);
  set($("waiters-head"), length ? `Queue, ${count(length)}` : "Queue");
  const box = $("name-picture");
  box.hidden = length < 2 || !row?.queue;
  const width = Math.max(200, box.parentElement.clientWidth - 32);
  if (!box.hidden) {
    if (box.firstChild) drawQueue(box.firstChild, row, width, LARGE);
    else box.append(queue(row, width, LARGE));
  }
  const clients = byClient(waiters);
  const canGroup = clients.length < waiters.length;
  $("waiters-by").hidden = !canGroup;
  const isGrouped = canGroup && !isInOrder;
  for (const button of $("waiters-by").children) button.setAttribute("aria-pressed", String((button.dataset.by === "client") === isGrouped));
  $("clients").hidden = !isGrouped;
  if (isGrouped) paintClients(clients);
  const listed = isGrouped ? [] : waiters.length || !length || isUnknown() ? waiters : [NAMELESS];
  $("waiters").hidden = !listed.length;
  if (listed.length) paintWaiters(listed, length);
  const more = length - waiters.length;
  const left = isGrouped ? clients.length - CLIENTS : 0;
  const texts = [left > 0 ? `${many(left, "more client")}` : "", more > 0 && waiters.length ? `${count(more)} more behind them` : ""];
  set($("waiters-more"), isUnknown() ? unknown() : !length ? "No one waits." : texts.filter(Boolean).join("; "));
}

/** The waiters of each client, in the order of their first places. */
function byClient(waiters) {
  const clients = new Map();
  for (const [place, waiter] of waiters.entries()) {
    const client = clients.get(waiter.label) ?? { label: waiter.label, waiting: 0, place: place + 1, since: waiter.since, silent: 0 };
    client.waiting++;
    client.since = Math.min(client.since, waiter.since);
    client.silent += Boolean(waiter.heard);
    clients.set(waiter.label, client);
  }
  return [...clients.values()];
}

function paintClients(clients) {
  list($("clients").tBodies[0], clients.slice(0, CLIENTS), (client) => client.label, (client) => {
    const who = h("td", "label", shown(client.label), " ", h("span", "tag urgent"));
    return h("tr", "", who, h("td", "num"), h("td", "num c-place"), h("td", "num", timer(client.since)));
  }, (element, client) => {
    const [who, waiting, place, first] = element.children;
    who.lastChild.hidden = !client.silent;
    set(who.lastChild, `${count(client.silent)} silent`);
    set(waiting, count(client.waiting));
    set(place, String(client.place));
    setTimer(first.firstChild, client.since);
  });
}

function paintWaiters(listed, length) {
  $("waiters").classList.toggle("without-roles", !listed.some((waiter) => waiter.as));
  list($("waiters").tBodies[0], listed, (waiter) => waiter.token, (waiter) => {
    const who = waiter.label === null ? `${many(length, "request")}; who waits is not recorded` : shown(waiter.label);
    const cell = h("td", "label", who, waiter.value ? " " : "", waiter.value ? h("span", "tag", shown(waiter.value)) : "", " ", h("span", "tag urgent"));
    return h("tr", "", h("td", "num soft"), cell, h("td", "soft", waiter.as), h("td", "num", waiter.since ? timer(waiter.since) : ""));
  }, (element, waiter) => {
    const [place, who, , wait] = element.children;
    set(place, waiter.since ? String(listed.indexOf(waiter) + 1) : "");
    who.lastChild.hidden = !waiter.heard;
    if (waiter.heard) set(who.lastChild, `silent for ${span(now() - waiter.heard)}`);
    if (waiter.since) setTimer(wait.firstChild, waiter.since);
  });
}

/** The lists that only some kinds have: parts, or items by worker. */
function paintListings(listings) {
  list($("listings"), listings, ({ title }) => title, () => h("div", "card"), (card, { title, rows, more }) => {
    fill(card, JSON.stringify([title, rows, more]), () => [
      h("h2", "", title),
      ...rows.map(([said, texts]) => h("div", "listing", said.length ? h("div", "label", ...says(said)) : "",
        ...texts.flatMap((text) => [h("span", "tag", shown(text)), " "]))),
      more ? h("p", "soft", `${count(more)} more`) : "",
    ]);
  });
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
  set($("name-spark-says"), samples.length > 1 ? `now ${count(row.waiting ?? 0)}, highest ${count(most)}` : "");
}

function paintFacts(row, remembered) {
  const { fence, grants, mean, permits: most } = remembered ?? {};
  $("facts-card").hidden = !kindOf(state.open).leases;
  const facts = [
    ["Grants a second", row ? (row.rate ?? 0).toFixed(1) : "–"],
    ["Grants remembered", grants ? count(grants) : "–"],
    ["Mean wait", mean ?? null ? brief(mean) : "–"],
    ...(most ? [["Permits", count(most)]] : []),
    ["Latest fence", fence ? String(fence) : "–"],
  ];
  const pairs = facts.flatMap(([what, value]) => [["dt", what, what], ["dd", what, value]]);
  list($("name-facts"), pairs, ([tag, what]) => tag + what, ([tag, what]) => h(tag, tag === "dd" && what.includes("fence") ? "mono" : ""), (element, [, , text]) => set(element, text));
}

/** The fence up to which leases are taken: the largest that is shown. */
const latest = (holders) => Math.max(...holders.map((holder) => holder.fence));

/** Why nothing can be released now; empty if a lease can be. */
const releaseObstacle = (holders) => obstacle("release") || (holders.length && latest(holders) ? "" : "There is no lease to release.");

function paintActs(open, row, holders) {
  const { acts } = kindOf(open);
  const canForget = acts.includes("forget") && !kindOf(open).records; // records are forgotten in their own view
  const obstacles = {
    release: acts.includes("release") ? releaseObstacle(holders) : null,
    hold: acts.includes("hold") ? obstacle("hold") : null,
    forget: canForget ? obstacle("forget") || (state.details?.version ? "" : "No part is done.") : null,
  };
  for (const [what, why] of Object.entries(obstacles)) {
    $(`act-${what}`).hidden = why === null;
    $(`act-${what}`).disabled = Boolean(why);
  }
  set($("act-hold"), row?.stop ? "End the hold …" : "Put on hold …");
  const known = Object.values(obstacles).filter((why) => why !== null);
  const why = [...new Set(known)].filter(Boolean);
  set($("act-note"), !known.length ? "Nothing can be done here." : why.length ? why.join(" ") : "");
  const isReleasable = holders.length > 0 && latest(holders) > 0;
  set($("act-shell-head"), isReleasable ? "The same in a shell" : "In a shell");
  const text = obstacles.forget === "" ? command("forget", open) : isReleasable ? command("release", { ...open, fence: latest(holders) }) : command("show", open);
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
    act(row?.stop ? "unhold" : "hold", { ...open, stop: row?.stop, waiting: row?.waiting ?? 0 });
  } else if (what === "forget" && !$("act-forget").disabled && !$("act-forget").hidden) {
    act("forget", { ...open, version: details.version });
  }
}

/** Ask for the release of one holder of several. */
function releaseOne(token) {
  const { open, details } = state;
  const holder = details?.holders.find((one) => one.token === token);
  if (!holder) return;
  const waiting = state.rows.get(`${open.kind}/${open.name}`)?.waiting ?? 0;
  act("release", { ...open, holding: 1, waiting, holders: [holder], waiters: details.waiters, fence: holder.fence, single: true });
}

const DONE = {
  force_release: "released it by force", release: "released it by force", hold: "put it on hold", unhold: "ended the hold",
  pause: "paused it", resume: "resumed it", resize: "set the limit", raise: "raised the spent amount", reset: "reset it", forget: "forgot it",
  preempt: "took it with a later request",
};

function paintPast(open, last) {
  const { entries, refused } = state.audit;
  const its = entries.filter((entry) => entry.kind === open.kind && entry.name === open.name);
  const isNoted = last && its.some((entry) => Math.abs(entry.when - last.when) < 5);
  const past = last && !isNoted ? [{ id: `last ${last.when}`, ...last }, ...its].sort((a, b) => b.when - a.when) : its;
  $("name-past-empty").hidden = past.length > 0;
  set($("name-past-empty"), refused ? `The audit is not read: ${refused}` : "Nothing that is remembered.");
  list($("name-past"), past.slice(0, 50), (entry) => entry.id, (entry) => {
    const why = !entry.why ? [] : entry.what === "resize" ? [` · ${entry.why}`] : [" · “", shown(entry.why), "”"];
    return h("li", "", h("b", "", shown(entry.by)), ` ${DONE[entry.what] ?? entry.what}`, h("span", "", day(entry.when), ...why));
  });
}

export function listen() {
  for (const button of $("waiters-by").children) {
    button.onclick = () => {
      isInOrder = button.dataset.by === "order";
      paint();
    };
  }
  $("act-release").onclick = () => ask("release");
  $("act-hold").onclick = () => ask("hold");
  $("act-forget").onclick = () => ask("forget");
}
