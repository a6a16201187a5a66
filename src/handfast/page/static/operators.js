// What operators did, the latest first.

import { $, h, list, nameLink, set, timer } from "./elements.js";
import { kindOf, state } from "./state.js";
import { day, many, shown, span } from "./words.js";

export function paint() {
  const { entries, refused } = state.audit;
  $("audit-table").hidden = !entries.length;
  $("audit-empty").hidden = entries.length > 0;
  if (refused) set($("audit-why"), `The audit is not read: ${refused}`);
  list($("audit-rows"), entries, (entry) => entry.id, (entry) => {
    const leases = entry.single ? `the lease with fence ${entry.fence}` : many(entry.count ?? 0, "lease");
    const taken = entry.count && entry.what === "release" ? ` (${leases})` : "";
    const rates = entry.rates === null ? "" : ` to ${entry.rates || "what each client brings"}`;
    const permits = entry.permits === null ? "" : ` to ${many(entry.permits, "permit")}`;
    const time = entry.duration === null ? "" : ` for ${span(entry.duration)}`;
    const values = `${taken}${rates}${permits}${time}${entry.now ? ", now" : ""}`;
    const link = h("a", "link mono", shown(entry.name));
    link.href = kindOf(entry).rates ? `#/limits/${encodeURIComponent(entry.name)}` : nameLink(entry.kind, entry.name);
    return h("tr", "",
      h("td", "nowrap", timer(entry.when), " ago", h("div", "soft", day(entry.when))), h("td", "nowrap", shown(entry.what), shown(values)), h("td", "label", link, " ", h("span", "soft", shown(entry.kind))),
      h("td", "label", shown(entry.by)), h("td", "label", shown(entry.why)));
  });
}

