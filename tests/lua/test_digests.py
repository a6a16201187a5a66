"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.lua.test_check_scripts import LUA

DIGESTS = {
    "multi_acquire": "7159f19ac94504f06f9b5ca06a30171f6dab1280",
    "names_best": "08557c84a027ad12e2ea4dd10b8fa642b942f185",
    "names_rank": "f57e8ef7c657b6ae7492bdea67b46b5e2e3f10dd",
    "names_unrank": "81d87fe6381a55ab6b20962a715a4495a6e2e6c9",
    "permit_acquire": "ad7063a3ba990a2b383831b8c36976a4d3d93057",
    "permit_cancel": "54ee57afa56299379d730d408184697f51979ca3",
    "permit_inspect": "33877748936d1102a26d58b56590593a8a936611",
    "permit_lower": "c86374e1f4bcf4bc362b048a4623cd515bbc69ed",
    "permit_release": "60243bdc1299ef8f49bf72bf55d58edc825909a8",
    "permit_renew": "80872d2c744d912e95f6536791050c82ed5befef",
    "permit_resize": "0fa2881710b07370a62f677f091bfe1b698dd701",
    "permit_revoke": "2402f2fe6d1c692fd5e2433669399eeaffed8764",
    "scores_advance": "082380091837da824e6e9056c69187dc7e12760d",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
