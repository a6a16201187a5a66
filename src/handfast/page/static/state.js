// What is known, and how it comes: a question a second for what has changed since the last look that this page knows.
// Nothing is asked while the page is hidden or frozen; the next answer has the difference, however long that was.

const SOON_MS = 250;
const PATIENCE_MS = 8000;
const SIGNED_OUT = "You are signed out: load the page again.";
const STEADY_S = 0.3; // an offset that differs by less is that of a slower answer

export const state = {
  me: { may: [], label: "", namespace: "", server: "", kinds: {}, thresholds: {}, every: 1 }, // as the server says
  run: "",
  number: 0,
  at: 0, // when the latest look ended
  sum: null,
  rows: new Map(), // by id, which is kind/name
  verdict: null,
  minutes: null, // of the four figures, one sample every five seconds
  problems: [],
  results: { counts: {}, totals: {}, rows: [], refused: "" },
  findings: [],
  audit: { entries: [], refused: "" },
  open: null, // the name that is shown: { kind, name }
  details: undefined, // its holders and waiters; null if the server does not know it, undefined before the first answer
  outage: null, // the server does not answer
  lost: null, // the process that serves the page does not answer
  isFrozen: false,
};

const byNumber = new Map();
let offset = 0;
let shownLook = 0;
let timeout = 0;
let isAsking = false;
let isWanted = false;
let heard = () => {};

const clock = () => (performance.timeOrigin + performance.now()) / 1000;

/** Whether nothing new is seen: then all durations stand still. */
export const isOld = () => Boolean(state.outage || state.lost || (state.at && !state.number));

const NOTHING = { acts: [], leases: false, rates: false, records: false, stands_by: false };

/** What holds for every name of a kind, as the server says. */
export const kindOf = ({ kind }) => state.me.kinds[kind] ?? NOTHING;

/** This moment, in the time of the server's process. */
export const now = () => (isOld() || state.isFrozen ? state.at : clock() + offset);

/** For how long the server has not answered. */
export const outageFor = () => state.outage.now - state.outage.since + clock() - state.outage.heardAt;

/** Call a function after each answer, and begin to ask. */
export function follow(paint) {
  heard = paint;
  document.addEventListener("visibilitychange", askNow);
  ask();
}

/** Show another name from now on, or none. */
export function look(open) {
  if (open) state.isFrozen = false;
  state.open = open;
  state.details = undefined;
  shownLook = 0;
  askNow();
}

export function freeze(isFrozen) {
  state.isFrozen = isFrozen;
  askNow();
}

/** Ask at once: something was done. */
export function askNow() {
  isWanted = isAsking;
  if (!isAsking) {
    clearTimeout(timeout);
    ask();
  }
}

async function ask() {
  if (document.hidden || state.isFrozen) return;
  isAsking = true;
  isWanted = false;
  const open = state.open;
  try {
    const query = new URLSearchParams({ run: state.run, after: state.number });
    if (open) for (const [key, value] of Object.entries({ ...open, shown: shownLook })) query.set(key, value);
    const answer = await getJson(`api/looks?${query}`);
    if (!state.me.namespace || state.run !== answer.run) await askWhoIAm();
    if (!state.isFrozen) take(answer, open);
    state.lost = null;
  } catch (error) {
    state.lost = { error: error.refused ?? "" };
  }
  isAsking = false;
  timeout = setTimeout(ask, isWanted ? 0 : state.number || isOld() ? state.me.every * 1000 : SOON_MS);
  heard();
}

/** Ask for the rights and the settings of this page. An older server, after a rollback, says less: the rest stays. */
export async function askWhoIAm() {
  state.me = { ...state.me, ...(await getJson("api/me")) };
}

export async function getJson(address, options = {}) {
  const answer = await fetch(address, { ...options, redirect: "manual", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (answer.type === "opaqueredirect") throw Object.assign(new Error(), { refused: SIGNED_OUT });
  const body = await answer.json();
  if (answer.ok) return body;
  throw Object.assign(new Error(body.error), { refused: body.error });
}

function take(answer, open) {
  const its = answer.now - clock();
  if (Math.abs(its - offset) > STEADY_S) offset = its;
  state.outage = answer.outage && { ...answer.outage, heardAt: clock() };
  if (!answer.number) {
    state.number = 0; // looks had ended, or another process answers: what is shown is old until the next look
    return;
  }
  Object.assign(state, { run: answer.run, number: answer.number, at: answer.at, sum: answer.sum });
  for (const part of ["verdict", "minutes", "problems", "results", "findings", "audit"]) if (answer[part]) state[part] = answer[part];
  takeRows(answer);
  if (open === state.open && "details" in answer) {
    state.details = answer.details;
    shownLook = answer.details?.shown ?? 0;
  }
}

function takeRows({ rows, gone, all }) {
  if (all) {
    byNumber.clear();
    state.rows.clear();
  }
  for (const number of gone) {
    state.rows.delete(byNumber.get(number)?.id);
    byNumber.delete(number);
  }
  for (const [number, changed] of Object.entries(rows)) {
    const row = byNumber.get(Number(number)) ?? {};
    Object.assign(row, changed);
    row.id ??= `${row.kind}/${row.name}`;
    byNumber.set(Number(number), row);
    state.rows.set(row.id, row);
  }
}
