"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.lua.test_check_scripts import LUA

DIGESTS = {
    "multi_acquire": "3c2b73881e53e88da127e48b45d9e18af2dee191",
    "names_best": "08557c84a027ad12e2ea4dd10b8fa642b942f185",
    "names_rank": "f57e8ef7c657b6ae7492bdea67b46b5e2e3f10dd",
    "names_unrank": "81d87fe6381a55ab6b20962a715a4495a6e2e6c9",
    "permit_acquire": "bf90fcb148499488fa1c034bee2161bd73c4a19f",
    "permit_cancel": "e446bcf780a0823c6ceca9e2a48472d2cc1907f2",
    "permit_inspect": "07bdb85101354ce333914301511113c69eaf1cbd",
    "permit_lower": "fc215d5bf189275dab134db597b3c09c21d0849b",
    "permit_release": "d9bad768c301755d7388e77a277dfe3aac6ae93d",
    "permit_renew": "c7fd042f9ca9086cd2247432c40de057f13a93cd",
    "permit_resize": "153ee19ede6cc1d07078baa6c293679f19474f76",
    "permit_revoke": "53f71d8e6e8ca365642966d0449b6d22af182bd5",
    "scores_advance": "082380091837da824e6e9056c69187dc7e12760d",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
