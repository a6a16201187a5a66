"""The rules, one family a file. Each has RULES, what its rules ask for, and ``check``, which yields what breaks them."""

from __future__ import annotations

from handfast.lint.rules import chance, commands, header, keys, names, numbers, order, replies, servers
from handfast.lint.suppressions import RULE as ALLOW

__all__ = ["FAMILIES", "RULES"]

FAMILIES = (header, replies, keys, commands, chance, numbers, names, servers, order)

RULES: dict[str, str] = {
    "syntax": "The script is Lua 5.1, which is what servers run.",
    "header": "The header can be understood.",
} | {rule: words for family in FAMILIES for rule, words in family.RULES.items()}
RULES[ALLOW] = "What is allowed has a reason, and something to allow."
"""Each rule, and what it asks for."""
