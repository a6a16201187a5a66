"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.lua.test_check_scripts import LUA

DIGESTS = {
    "multi_acquire": "b7ad33002cfd792aaa3e64f096f9aa78bed359b9",
    "names_best": "08557c84a027ad12e2ea4dd10b8fa642b942f185",
    "names_rank": "f57e8ef7c657b6ae7492bdea67b46b5e2e3f10dd",
    "names_unrank": "81d87fe6381a55ab6b20962a715a4495a6e2e6c9",
    "permit_acquire": "dc188ecb8a6269ca680a1383f5a41d6cc92c28ab",
    "permit_cancel": "8ab3db912ddba24e07dbb4aa0e127c796ec47f1c",
    "permit_inspect": "3f33cc1b689f3166b1cb87ea59bb28669d2ac08b",
    "permit_lower": "0157339aef6ba33ed10d56b374e55c696c998863",
    "permit_release": "13543ef45bad639814249c53bc73bfd961afa3f6",
    "permit_renew": "f275f1f813603c07bc82166a6e3c5c92471b1823",
    "permit_resize": "4bc925d1a4974d64174881278aff8df2f6c6c8d7",
    "permit_revoke": "d554709d1f886556bfcbbd2f99ffd57482609f9a",
    "scores_advance": "082380091837da824e6e9056c69187dc7e12760d",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
