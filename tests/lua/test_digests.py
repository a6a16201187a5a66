"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.lua.test_check_scripts import LUA

DIGESTS = {
    "multi_acquire": "9ecd4de5703f250151ea80ba875357f2eb68acb5",
    "names_best": "08557c84a027ad12e2ea4dd10b8fa642b942f185",
    "names_rank": "f57e8ef7c657b6ae7492bdea67b46b5e2e3f10dd",
    "names_unrank": "81d87fe6381a55ab6b20962a715a4495a6e2e6c9",
    "permit_acquire": "bc9da744a1b7d260a6f1b7fab0b9ef3b788bdf23",
    "permit_cancel": "ffa4a187929e08c98e406020abbaedce71a36be6",
    "permit_inspect": "63c9af0d0b0eb1c9e66b3cd42762c223888923d3",
    "permit_lower": "2ac05de67faa125a4f70ab2457e6b7947c7390ad",
    "permit_release": "5892016923badedef4eaaa10fa94c8c2184e6d96",
    "permit_renew": "c7fd042f9ca9086cd2247432c40de057f13a93cd",
    "permit_resize": "dfa9567a79c9de6cb8763841bab5590dd87ad137",
    "permit_revoke": "c0e1d6b7750373a2f31fdef5b9a70eaa3e68657b",
    "scores_advance": "082380091837da824e6e9056c69187dc7e12760d",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
