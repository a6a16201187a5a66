"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.lua.test_check_scripts import LUA

DIGESTS = {
    "multi_acquire": "c0a50db19cdb3ed0e6b7b8ef92e1fc6d575cf638",
    "names_best": "08557c84a027ad12e2ea4dd10b8fa642b942f185",
    "names_rank": "f57e8ef7c657b6ae7492bdea67b46b5e2e3f10dd",
    "names_unrank": "81d87fe6381a55ab6b20962a715a4495a6e2e6c9",
    "permit_acquire": "23213c01708ee318e9935239de1e7b2ec23e078d",
    "permit_cancel": "0a428a87c757bce0d35089fa51118e167f8bd25e",
    "permit_inspect": "48de363875055ce0653e3af0b69e24aa7d50538b",
    "permit_lower": "031854925f3823e12999d2eff485b254d10e7a80",
    "permit_release": "afd1bb1164457a8e631315dcca26d1fc630a58fd",
    "permit_renew": "f275f1f813603c07bc82166a6e3c5c92471b1823",
    "permit_resize": "efeeece063d94aaff6611fa8443108c29d47cb01",
    "permit_revoke": "a384871714c400a64ce7323e22ab2567400b58f5",
    "scores_advance": "082380091837da824e6e9056c69187dc7e12760d",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
