// Whether the server keeps what the locks promise, the worst first.

import { $, h, list, set, shell, sign, spoken } from "./elements.js";
import { state } from "./state.js";
import { many, sentence, shown } from "./words.js";

const LEVELS = { failure: "urgent", warning: "warning", info: "note", ok: "fine" };
const ORDER = Object.keys(LEVELS);

/** How many findings need a look. */
export const badge = () => state.findings.filter((finding) => ORDER.indexOf(finding.severity) < 2).length;

export function paint() {
  const points = badge();
  set($("doctor-verdict"), !state.findings.length ? "Looking …"
    : `The server keeps what the locks promise${points ? `, but for ${many(points, "point")}` : ""}`);
  const found = [...state.findings].sort((a, b) => ORDER.indexOf(a.severity) - ORDER.indexOf(b.severity));
  list($("findings"), found, (finding) => JSON.stringify(finding), (finding) => {
    const level = LEVELS[finding.severity];
    const body = h("div", "", h("div", "text", spoken(level), shown(sentence(finding.text))));
    if (finding.advice) body.append(h("div", "advice", shown(`${sentence(finding.advice)}.`)));
    if (finding.command) body.append(shell(finding.command));
    return h("li", `finding ${level}`, sign(level), body);
  });
}
