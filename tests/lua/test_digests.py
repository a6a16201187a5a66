"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.lua.test_check_scripts import LUA

DIGESTS = {
    "multi_acquire": "2dfa53e8c2e1c3bed6f4a7487f1d0ad72ee1d7a8",
    "names_best": "08557c84a027ad12e2ea4dd10b8fa642b942f185",
    "names_rank": "f57e8ef7c657b6ae7492bdea67b46b5e2e3f10dd",
    "names_unrank": "81d87fe6381a55ab6b20962a715a4495a6e2e6c9",
    "permit_acquire": "ee7161d5b004fc44a993f275bfa48b14be2a2ebd",
    "permit_cancel": "07f855fea1718298595147b9229d150f2b48e638",
    "permit_inspect": "47e0c02ab8ea7008dbc828a560f8227fe2121272",
    "permit_lower": "ad0cd9e2aa1404efdeb529bc3f348479d205a9e1",
    "permit_release": "266ab69f975ce56ada2a09a83783c45c7292b847",
    "permit_renew": "c7fd042f9ca9086cd2247432c40de057f13a93cd",
    "permit_resize": "e3d4ad1ea7650eb2cbee65de7e3f302389156b42",
    "permit_revoke": "73bb370c81e87d86cc254121e12d9756e1f0112e",
    "scores_advance": "082380091837da824e6e9056c69187dc7e12760d",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
