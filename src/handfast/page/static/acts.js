// Acts: what is done, and to whom, is shown before it is done, with the command that does the same.

import { $, fill, h, set, shell, toast } from "./elements.js";
import { askNow, getJson, now, state } from "./state.js";
import { count, many, quoted, shown, span } from "./words.js";

const KEYED = ["pause", "resume", "forget"]; // these commands take keys one by one

/** The command that does the same in a shell. */
export function command(what, { kind, name, fence, seconds, reason = "…" }) {
  const [plain, ...keys] = KEYED.includes(what) ? name.split("|") : [name];
  const words = ["handfast", what];
  const tail = plain.startsWith("-") ? ["--", quoted(plain)] : [];
  if (!tail.length) words.push(quoted(plain));
  for (const key of keys) words.push("--key", quoted(key));
  const usual = { pause: "limiter", resume: "limiter", forget: "once" }[what] ?? (what === "show" ? "" : "lock");
  if (kind !== usual) words.push("--kind", kind);
  if (fence) words.push("--if-fence", fence);
  if (seconds) words.push("--for", seconds % 3600 ? `${seconds / 60}m` : `${seconds / 3600}h`);
  if (state.me.namespace && state.me.namespace !== "hf") words.push("--namespace", quoted(state.me.namespace));
  if (what !== "show") words.push("--reason", quoted(reason));
  return [...words, ...tail].join(" ");
}

const DIALOGS = {
  release: { title: ["Take ", " away?"], yes: "Take it away", text: releaseText },
  hold: {
    title: ["Put ", " on hold?"], yes: "Put it on hold",
    text: () => [h("p", "", "No one else gets in until the time is over or the hold is ended. Holders go on and renew; the queue keeps its order.")],
  },
  unhold: {
    title: ["End the hold of ", "?"], yes: "End the hold",
    text: ({ waiting }) => [h("p", "", waiting ? `The first of ${count(waiting)} waiting gets in.` : "None wait for it.")],
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

function releaseText({ holders, waiters, waiting, fence }) {
  const oldest = holders[0];
  const next = waiters.find((one) => !one.heard);
  const others = holders.length > 1 ? ` and ${many(holders.length - 1, "other")}` : "";
  const lose = holders.length > 1 ? "lose it, the first" : "loses it";
  const who = h("p", "", h("b", "", shown(oldest.label)), `${others} ${lose} after ${span(now() - oldest.since)}. `);
  if (next) who.append(`${count(waiting)} waiting; `, shown(next.label), " is next.");
  else who.append("None wait.");
  return [
    who,
    h("p", "soft", "Its block learns of it at once. Writes that are on their way are refused only where the fence is checked."),
    h("p", "soft", "Leases are taken up to fence ", h("span", "mono", String(fence)), ". Who came later is not touched."),
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
  $("ask-yes").className = what === "release" || what === "forget" ? "button danger" : "button";
  set($("ask-yes"), yes);
  $("ask-yes").disabled = false;
  set($("ask-error"), "");
  $("ask-reason").value = "";
  showCommand();
  $("ask").showModal();
  $("ask-reason").focus();
}

const needsTime = (what) => what === "hold" || what === "pause";

function given() {
  const { what, target: { kind, name, fence } } = asked;
  return { kind, name, fence, reason: $("ask-reason").value.trim(), seconds: needsTime(what) ? Number($("ask-seconds").value) : undefined };
}

function showCommand() {
  const its = given();
  const text = command(asked.what, { ...its, reason: its.reason || "…" });
  fill($("ask-shell"), text, () => [shell(text)]);
}

async function perform(event) {
  event.preventDefault();
  const body = given();
  if (!body.reason) {
    set($("ask-error"), "A reason is needed: it is what others will read.");
    $("ask-reason").focus();
    return;
  }
  $("ask-yes").disabled = true;
  try {
    state.me = await getJson("api/me"); // with the token of the cookie that the browser has now
    const headers = { "Content-Type": "application/json", "X-Handfast-Token": state.me.token };
    const answer = await getJson(`api/${asked.what}`, { method: "POST", headers, body: JSON.stringify(body) });
    $("ask").close();
    const { done } = answer;
    toast(done.slice(0, 1).toUpperCase() + done.slice(1));
    askNow();
  } catch (error) {
    set($("ask-error"), error.refused ?? "The server of this page does not answer: it is not known whether it was done.");
    askNow();
  }
  $("ask-yes").disabled = false;
}

export function listen() {
  $("ask-form").onsubmit = perform;
  $("ask-no").onclick = () => $("ask").close();
  $("ask-reason").oninput = showCommand;
  $("ask-seconds").onchange = showCommand;
}
