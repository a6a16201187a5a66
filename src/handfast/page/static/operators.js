// What operators did, the latest first.

import { $, h, list, nameLink, set } from "./elements.js";
import { state } from "./state.js";
import { day, many, shown } from "./words.js";

export function paint() {
  const { entries, refused } = state.audit;
  $("audit-table").hidden = !entries.length;
  $("audit-empty").hidden = entries.length > 0;
  if (refused) set($("audit-why"), `The audit is not read: ${refused}`);
  list($("audit-rows"), entries, (one) => one.id, (one) => {
    const taken = one.count && one.what === "release" ? ` (${many(one.count, "lease")})` : "";
    const link = h("a", "link mono", shown(one.name));
    link.href = one.kind === "limiter" ? `#/limits/${encodeURIComponent(one.name)}` : nameLink(one.kind, one.name);
    return h("tr", "",
      h("td", "soft nowrap", day(one.at)), h("td", "nowrap", shown(one.what), taken), h("td", "label", link, " ", h("span", "soft", shown(one.kind))),
      h("td", "label", shown(one.by)), h("td", "label", shown(one.why)));
  });
}

