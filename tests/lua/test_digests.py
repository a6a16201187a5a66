"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.lua.test_check_scripts import LUA

DIGESTS = {
    "multi_acquire": "ba1e6640cbcacf9e476c44725e220dec22c7b9cc",
    "names_best": "08557c84a027ad12e2ea4dd10b8fa642b942f185",
    "names_rank": "f57e8ef7c657b6ae7492bdea67b46b5e2e3f10dd",
    "names_unrank": "81d87fe6381a55ab6b20962a715a4495a6e2e6c9",
    "permit_acquire": "ad8cab38aca714a2946014757316937f6605c8a2",
    "permit_cancel": "1a24732a1f073281e2ec59e702dfea5b11dce94a",
    "permit_inspect": "63c9af0d0b0eb1c9e66b3cd42762c223888923d3",
    "permit_lower": "666d71436bd0295cf39e8538457afabdcb1d71cd",
    "permit_release": "cdd9ff35147e3b0afcb12032e544bcac258e3a89",
    "permit_renew": "c7fd042f9ca9086cd2247432c40de057f13a93cd",
    "permit_resize": "82ec309560cb14f1737de26ddee333bad3c5bd8a",
    "permit_revoke": "1aba62955b1a9b9b9017b2a0988ff72cd6c92eef",
    "scores_advance": "082380091837da824e6e9056c69187dc7e12760d",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
