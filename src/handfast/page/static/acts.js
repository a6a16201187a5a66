// Acts: what is done, and to whom, is shown before it is done, with the command that does the same.

import { $, h, set, setShell, shell, toast } from "./elements.js";
import { askWhoIAm, freeze, getJson, now, state } from "./state.js";
import { count, quoted, shown, span } from "./words.js";

const KINDS = { hold: "lock", unhold: "lock", pause: "limiter", resume: "limiter", forget: "once" };
/** The kind that a command is for without --kind. */

const PATTERNS = ["hold", "unhold"]; // these commands take patterns: a wildcard in a name stands in brackets

/** The command that does the same in a shell. */
export function command(what, { kind, name, fence, single, seconds, reason = "…" }) {
  const plain = PATTERNS.includes(what) ? name.replace(/[*?[]/g, "[$&]") : name;
  const isOption = plain.startsWith("-");
  const words = ["handfast", what, ...(isOption ? [] : [quoted(plain)])];
  if (kind !== KINDS[what]) words.push("--kind", kind);
  if (fence) words.push(single ? "--fence" : "--if-fence", fence);
  if (seconds) words.push("--for", seconds % 3600 ? `${seconds / 60}m` : `${seconds / 3600}h`);
  if (state.me.namespace && state.me.namespace !== "hf") words.push("--namespace", quoted(state.me.namespace));
  if (what !== "show") words.push("--reason", quoted(reason));
  return [...words, ...(isOption ? ["--", quoted(plain)] : [])].join(" ");
}

const DIALOGS = {
  release: { title: ["Release ", " by force?"], yes: "Release by force", text: releaseText },
  hold: {
    title: ["Put ", " on hold?"], yes: "Put it on hold",
    text: () => [h("p", "", "No one else gets in until the time is over or the hold is ended. Holders go on and renew; the queue keeps its order.")],
  },
  unhold: {
    title: ["End the hold of ", "?"], yes: "End the hold",
    text: ({ waiting }) => [h("p", "", waiting ? `The first of ${count(waiting)} waiting gets in.` : "No one waits for it.")],
  },
  pause: {
    title: ["Pause ", "?"], yes: "Pause",
    text: () => [h("p", "", "No one is admitted until the time is over. Those who wait keep their places.")],
  },
  resume: {
    title: ["Resume ", "?"], yes: "Resume",
    text: () => [h("p", "", "The queue is served at once, as far as the rates admit.")],
  },
  forget: {
    title: ["Forget ", "?"], yes: "Forget it",
    text: () => [h("p", "", "What is recorded is deleted: the next caller runs it again. A run that goes on records its result all the same.")],
  },
};

const NAMED = 5;

function releaseText({ holders, holding, waiters, waiting, fence, single }) {
  const named = holders.slice(0, NAMED).flatMap((holder, place) => [place ? ", " : "", h("b", "", shown(holder.label))]);
  const others = holding > NAMED ? ` and ${count(holding - Math.min(NAMED, holders.length))} more` : "";
  const who = h("p", "", ...named, `${others} ${holding > 1 ? "lose their leases, the oldest" : "loses its lease"} after ${span(now() - holders[0].since)}. `);
  const next = waiters.find((waiter) => !waiter.heard);
  if (next) who.append(`${count(waiting)} waiting; `, shown(next.label), " is next.");
  else who.append("No one waits.");
  const block = holding > 1 ? "Their blocks raise" : "Its block raises";
  return [
    who,
    h("p", "soft", `${block} LeaseLost at once. Writes that are on their way are refused only where the fence is checked.`),
    h("p", "soft", single ? "The other holders go on. It has fence " : "Who gets it from now on keeps it. Up to fence ", h("span", "mono", String(fence)), "."),
  ];
}

let asked = null;

/** Ask for the reason of an act. */
export function act(what, target) {
  const { title: [before, after], yes, text } = DIALOGS[what];
  asked = { what, target };
  $("ask-title").replaceChildren(before, h("b", "mono", shown(target.name)), after);
  $("ask-text").replaceChildren(...text(target));
  $("ask-for").hidden = !needsTime(what);
  $("ask-yes").className = what === "release" || what === "forget" ? "button danger filled" : "button";
  set($("ask-yes"), yes);
  $("ask-yes").disabled = false;
  refuse("");
  $("ask-reason").value = "";
  showCommand();
  $("ask").showModal();
  $("ask-reason").focus();
}

/** Say below the field why nothing is done. */
function refuse(why) {
  set($("ask-error"), why);
  if (why) $("ask-reason").setAttribute("aria-invalid", "true");
  else $("ask-reason").removeAttribute("aria-invalid");
}

const needsTime = (what) => what === "hold" || what === "pause";

function given() {
  const { what, target: { kind, name, fence, single, version, stop } } = asked;
  return { kind, name, fence, single, version: { hold: stop?.id ?? "0", unhold: stop?.id, resume: stop?.id }[what] ?? version, reason: $("ask-reason").value.trim(), seconds: needsTime(what) ? Number($("ask-seconds").value) : undefined };
}

function showCommand() {
  const its = given();
  const text = command(asked.what, { ...its, reason: its.reason || "…" });
  if ($("ask-shell").firstChild) setShell($("ask-shell").firstChild, text);
  else $("ask-shell").append(shell(text));
}

async function perform(event) {
  event.preventDefault();
  const mine = asked;
  const body = given();
  if (!body.reason) {
    refuse("A reason is needed: it is what others will read.");
    $("ask-reason").focus();
    return;
  }
  $("ask-yes").disabled = true;
  let isSent = false;
  try {
    await askWhoIAm(); // with the token of the cookie that the browser has now
    if (asked !== mine || !$("ask").open) return; // left meanwhile
    const headers = { "Content-Type": "application/json", "X-Handfast-Token": state.me.token };
    isSent = true;
    const { done } = await getJson(`api/${mine.what}`, { method: "POST", headers, body: JSON.stringify(body) });
    if (asked === mine) $("ask").close();
    toast(done);
  } catch (error) {
    const why = isSent ? "it is not known whether it was done." : "nothing was done.";
    if (asked === mine) refuse(error.refused ?? `The server of this page does not answer: ${why}`);
    else toast(error.refused ?? why);
  } finally {
    if (asked === mine) $("ask-yes").disabled = false;
    freeze(false); // what was done is to be seen
  }
}

export function listen() {
  $("ask-form").onsubmit = perform;
  $("ask-no").onclick = () => $("ask").close();
  $("ask-reason").oninput = () => {
    refuse("");
    showCommand();
  };
  $("ask-seconds").onchange = showCommand;
}
