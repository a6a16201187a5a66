"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.lua.test_check_scripts import LUA

DIGESTS = {
    "multi_acquire": "3bb6a87f5070bec93a41f1f2a0bfb80480c9f16b",
    "names_best": "08557c84a027ad12e2ea4dd10b8fa642b942f185",
    "names_rank": "f57e8ef7c657b6ae7492bdea67b46b5e2e3f10dd",
    "names_unrank": "81d87fe6381a55ab6b20962a715a4495a6e2e6c9",
    "permit_acquire": "337c9e6cd09d83c90f4e9e002e9da3dd4eae6367",
    "permit_cancel": "01d317b6b9880dcd9ac689c774b05235c0398ed2",
    "permit_inspect": "63c9af0d0b0eb1c9e66b3cd42762c223888923d3",
    "permit_lower": "6ce87aa28dfe07d7b3c9cb610df65f763e2e486f",
    "permit_release": "56cb73cb236d996458f3428945165aeb38122823",
    "permit_renew": "c7fd042f9ca9086cd2247432c40de057f13a93cd",
    "permit_resize": "30b56da5faeb8d7343e67f2d26e2a82ec72e77cf",
    "permit_revoke": "2d5f0aa006a73c7357bebe1655ec2d0c0b7de8d9",
    "scores_advance": "082380091837da824e6e9056c69187dc7e12760d",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
