// Whether the server keeps what the locks promise, the worst first.

import { $, h, list, set, shell, sign, spoken } from "./elements.js";
import { state } from "./state.js";
import { many, sentence, shown } from "./words.js";

const LEVELS = { failure: "urgent", warning: "warning", info: "note", ok: "fine" };
const ORDER = Object.keys(LEVELS);

/** How many findings need a look. */
export const badge = () => state.findings.filter((one) => ORDER.indexOf(one.severity) < 2).length;

export function paint() {
  const points = badge();
  set($("doctor-verdict"), !state.findings.length ? "Looking …"
    : `The server keeps what the locks promise${points ? `, but for ${many(points, "point")}` : ""}`);
  const found = [...state.findings].sort((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
  list($("findings"), found, (one) => JSON.stringify(one), (one) => {
    const level = LEVELS[one.severity];
    const body = h("div", "", h("div", "text", spoken(level), shown(sentence(one.text))));
    if (one.advice) body.append(h("div", "advice", shown(`${sentence(one.advice)}.`)));
    if (one.command) body.append(shell(one.command));
    return h("li", `finding ${level}`, sign(level), body);
  });
}
