"""The rules, one family per module.

Each module has RULES, what its rules require, and ``check``, which yields findings.
"""

from __future__ import annotations

from handfast_lint.rules import chance, commands, header, keys, names, numbers, order, replies, servers
from handfast_lint.suppressions import RULE as ALLOW

__all__ = ["FAMILIES", "RULES"]

FAMILIES = (header, replies, keys, commands, chance, numbers, names, servers, order)

RULES: dict[str, str] = {
    "syntax": "The script is valid Lua 5.1, the version that servers run.",
    "header": "The header is valid.",
} | {rule: words for family in FAMILIES for rule, words in family.RULES.items()}
RULES[ALLOW] = "A comment that suppresses a rule gives a reason and suppresses a finding."
"""The rules by name, and what each requires."""
