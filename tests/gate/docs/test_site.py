"""The generated pages of the reference have every public member of every class, in full on a single page."""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections import Counter
from pathlib import Path

import handfast

HOOK = Path(__file__).parents[3] / "tools/site_hook.py"


def test_each_page_of_a_class_has_all_members_and_each_member_is_shown_once():
    spec = importlib.util.spec_from_file_location("site_hook", HOOK)
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    shown, places, links = {}, Counter(), set()
    for name in hook.CLASSES:
        page = "\n".join(hook._class_page(name, shown))
        listed = dict(re.findall(r"^\| \[`(\w+)`\]\[handfast\.(\w+\.\w+)\] \|", page, re.MULTILINE))
        members = inspect.getmembers_static(getattr(handfast, name))
        public = {one for one, found in members if one[0] != "_" and is_ours(found)}
        assert public <= listed.keys(), name
        links |= set(listed.values())
        places.update(re.findall(r"^::: handfast\.(\w+\.\w+)$", page, re.MULTILINE))
    assert len(links) > 100
    assert places == Counter(links)


def is_ours(member):
    """Return whether it is a method or a property, and not one of a base such as tuple."""
    method = getattr(member, "fget", None) or getattr(member, "__func__", member)
    return str(getattr(method, "__module__", "")).startswith("handfast")
