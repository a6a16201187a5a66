// Whether the server keeps what the locks promise, the worst first.

import { $, h, list, set, shell, sign, spoken } from "./elements.js";
import { state } from "./state.js";
import { many, shown } from "./words.js";

const ORDER = ["urgent", "warning", "note", "fine"];

const countOf = (level) => state.findings.filter((finding) => finding.level === level).length;

/** How many findings there are of the worst level, and that level. Notes do not count. */
export const badge = () => (countOf("urgent") ? [countOf("urgent"), "urgent"] : [countOf("warning"), "warning"]);

export function paint() {
  const points = countOf("urgent") + countOf("warning");
  set($("doctor-verdict"), !state.findings.length ? "Looking …"
    : points ? `${many(points, "setting")} of this server ${points === 1 ? "weakens" : "weaken"} what the locks promise`
    : "The server keeps what the locks promise");
  const found = [...state.findings].sort((a, b) => ORDER.indexOf(a.level) - ORDER.indexOf(b.level));
  list($("findings"), found, (finding) => JSON.stringify(finding), (finding) => {
    const { level } = finding;
    const body = h("div", "", h("div", "text", spoken(level), shown(finding.says)));
    if (finding.means) body.append(h("div", "advice", shown(finding.means)));
    if (finding.command) body.append(shell(finding.command));
    return h("li", `finding ${level}`, sign(level), body);
  });
}
