"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.lua.test_check_scripts import LUA

DIGESTS = {
    "multi_acquire": "3a149329ad01b4b7a5bf362feb4fe44db41ccbde",
    "names_best": "08557c84a027ad12e2ea4dd10b8fa642b942f185",
    "names_rank": "f57e8ef7c657b6ae7492bdea67b46b5e2e3f10dd",
    "names_unrank": "81d87fe6381a55ab6b20962a715a4495a6e2e6c9",
    "permit_acquire": "2cccc27e32b29de5f31e9027e05cf4872688aa07",
    "permit_cancel": "aeeffcf6373a5605aa11f53294adb86d65fde05e",
    "permit_inspect": "17c0c7a513fe17b70a1f9a8b0f9d6e3bf4172e07",
    "permit_lower": "db9d06cee131861eb9187f5f17aafb4c7d9b06d3",
    "permit_release": "0444f288394026f9621c23ea2022c38e97fba5d2",
    "permit_renew": "f275f1f813603c07bc82166a6e3c5c92471b1823",
    "permit_resize": "354aaa2f4d2c838a6527bfa4cc1720a323414f89",
    "permit_revoke": "3bf087e48bfcef7a331db4ede4d2147ae9dc7f6e",
    "scores_advance": "082380091837da824e6e9056c69187dc7e12760d",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
