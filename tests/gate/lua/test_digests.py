"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.gate.lua.test_check_scripts import LUA

DIGESTS = {
    "debounce_cancel": "fce449ff3feea3aeee8e1940488fffcd890abb96",
    "debounce_claim": "ee1c6ef332874a433210bde50342fa5a53b1816f",
    "debounce_enter": "175268c2476440f7707c9a8ed425bc5649ef0fb1",
    "limit_acquire": "cddf2c83b099f0a43477a4ff1b5f205375faf117",
    "limit_inspect": "884bf998772385c0a8f462aceba384bfda918172",
    "limit_pause": "4eb80f5922f1a83d69eaefd85a8eae8c70ccc6e8",
    "limit_resize": "6bce275c333eb6033e015d9af31a624c9588dbb0",
    "limit_settle": "6407199b01a30330ebc5eef2957312474bbf706f",
    "locks_acquire": "df62b782b495fd2f9a9766674ae056aef7150151",
    "locks_release": "47b26b821e7f850b8fdeaf2ebd8c3e59492f7da5",
    "multi_acquire": "e498f7eb30ea53edd8c55ab174be8e4b3b503ee4",
    "names_best": "c4eb07f69b952770def2047d26dd8ec4cc4b1b6f",
    "names_rank": "7632dfd3d886cc29e1d6fa54e50d48b3a660a61e",
    "names_unrank": "0df05e9400ed10d6fa2e13b6252f33fc6d899e0f",
    "once_acquire": "089771c41edf6381cdfab03aa14111fc7fc74406",
    "once_cancel": "000360ca76e8d4eaeb0e3dc1c8bc2ab6f49a2466",
    "once_record": "07a8fd4f0aef49b9d16723b190b2e339537752f6",
    "permit_acquire": "c3476c7d0f8eb119f875eba12697675292acd4d7",
    "permit_cancel": "5d71651e4374ff7b62058188d207d7194ba32931",
    "permit_confirm": "fc34bfbab3a995e97bf83f4466f37459fc67e124",
    "permit_inspect": "ac65c34be1a244b6645c0beb5c4906df0ee83a2e",
    "permit_lower": "dd2fc923f7d6657b30023317b2edf8b211d315af",
    "permit_release": "5782139315c30a0ab0b9c7ca5491f9e724fd01cb",
    "permit_renew": "bdc030d9485d132985c77438d985dd54888029bc",
    "permit_resize": "04947099cd2c8024622e9a351ab2b94047660755",
    "permit_revoke": "b925a6e3ced3e34d6167af84070393999d8c7fcd",
    "scores_advance": "8187a173759f53efe137728e7c0b89917ad186b9",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
