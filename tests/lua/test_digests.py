"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.lua.test_check_scripts import LUA

DIGESTS = {
    "locks_acquire": "8e2ba8d94ddf361b4f810a55a7e582a0368817f1",
    "locks_release": "e808809b778a8ce9f6153177c500c73ba9ca44cb",
    "multi_acquire": "5898bb53f50927fb6a00d4b81fa4514c78fa204a",
    "names_best": "08557c84a027ad12e2ea4dd10b8fa642b942f185",
    "names_rank": "f57e8ef7c657b6ae7492bdea67b46b5e2e3f10dd",
    "names_unrank": "81d87fe6381a55ab6b20962a715a4495a6e2e6c9",
    "permit_acquire": "f7f48c35d81d33ce6067941c4dbaf7ed81a4e169",
    "permit_cancel": "1457b3b7eabac79a9dc66e88df1da7c771c55eff",
    "permit_inspect": "112638a94aceba2a4429fe8fa0381c7371fd910c",
    "permit_lower": "068d51a08e609ccc0d27adfd709bf3e657dc4e46",
    "permit_release": "f4286bf1bea40e7fa3003a49fc4dd7328f03fcdb",
    "permit_renew": "79ab67ccd722273bfda7ea08b4df2b537970c375",
    "permit_resize": "bffc8d9d55f15c1356c795ae2b460d72a034d34c",
    "permit_revoke": "565340d93f82332a366ba532ede98e097a3a8c11",
    "scores_advance": "082380091837da824e6e9056c69187dc7e12760d",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
