"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.gate.lua.test_check_scripts import LUA

DIGESTS = {
    "limit_acquire": "0f55184080307ab41a1e9097802e57329cad23f5",
    "limit_inspect": "f97e26b578913d79ca07dbff32367bc008f0e8b1",
    "limit_settle": "092baa219949f289b8a02306a1e8a7565f2bf109",
    "locks_acquire": "8e2ba8d94ddf361b4f810a55a7e582a0368817f1",
    "locks_release": "e808809b778a8ce9f6153177c500c73ba9ca44cb",
    "multi_acquire": "6c599e03389d1af71a9c96ce83ab071a50a8edac",
    "names_best": "08557c84a027ad12e2ea4dd10b8fa642b942f185",
    "names_rank": "f57e8ef7c657b6ae7492bdea67b46b5e2e3f10dd",
    "names_unrank": "81d87fe6381a55ab6b20962a715a4495a6e2e6c9",
    "once_acquire": "928966c83a807d5e670181bcc1279e2e8877fe1c",
    "once_cancel": "b495b27fda60da5229eb214998f4cde94ab2d9ac",
    "once_record": "ff767d792b68dbf27fc92a2586daa7ca9c795fe9",
    "permit_acquire": "58ff106060b3f23f25476264d4d6ab0ff026880d",
    "permit_cancel": "aaacf58f34eae3d28baa1b1f507684afe576ef21",
    "permit_inspect": "8884d560eca99e7e5d26e075ebc76b860279a784",
    "permit_lower": "ac80a69c2fe908c0717e45297c3bf3f97981dd8b",
    "permit_release": "536b878256475bcadd4c254cf285f09d8b08e7ae",
    "permit_renew": "79ab67ccd722273bfda7ea08b4df2b537970c375",
    "permit_resize": "11f7ce95e13e5405b3b231924f0fbd4b155659bd",
    "permit_revoke": "cee9423fe0e69de00a75bed25a1063a139e7f69d",
    "scores_advance": "082380091837da824e6e9056c69187dc7e12760d",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
