"""The scripts are the released ones: a digest that changes is a new script on every server."""

from __future__ import annotations

from handfast._engine.script import load
from tests.gate.lua.test_check_scripts import LUA

DIGESTS = {
    "limit_acquire": "ca1f47269529761f87126d80d72f2c66ae031c90",
    "limit_inspect": "0fcdc993b90af372eed07946928c1e8084c01180",
    "limit_settle": "396d3c1c0bfe4ef880c681061f80cba69bc9a84d",
    "locks_acquire": "a52935b669633bb2742343431fe85cc7d101647a",
    "locks_release": "e4ec3b596ebb22555e29f9a38b55201fd2a30642",
    "multi_acquire": "93d7975ca22469ade2f374b506deb7223b20f23e",
    "names_best": "c4eb07f69b952770def2047d26dd8ec4cc4b1b6f",
    "names_rank": "7632dfd3d886cc29e1d6fa54e50d48b3a660a61e",
    "names_unrank": "0df05e9400ed10d6fa2e13b6252f33fc6d899e0f",
    "once_acquire": "563b0b24098150d342a9e49cb9624166f86b6316",
    "once_cancel": "e2553ecd8d9ae8bd05ff11e4811fef37e3f7a29e",
    "once_record": "1511a92edcba225bd56392410a70ad4a7e4c5268",
    "permit_acquire": "1d84adba4e0f385e02d540596c754e593ba57278",
    "permit_cancel": "714ebaf712029af857d8b57646b832a173f43e6e",
    "permit_confirm": "2880bdd848434f3f07d9cf782eb42b140fe836de",
    "permit_inspect": "ee9f0dc9dfc6c05c0063b7d7d29f7d06151c36ae",
    "permit_lower": "ce0afad12f57838cb570c06c2f1cbe3e3c21572b",
    "permit_release": "7096bf866f8898b4deac635b88d8daae18505137",
    "permit_renew": "32715e8aae9a2cc5f76c9d7df649ed0ce8199be5",
    "permit_resize": "cee760c4eaa58642e5ab8dddda0da78c2b2a3a60",
    "permit_revoke": "5b8749f0a1a2b03049eaa6bbc30ff5574aad5e60",
    "scores_advance": "8061ef11162a22abef0ca3780bac60714d379a05",
}
"""If one changes, say so in the changelog, and change it here."""


def test_the_digests_are_these():
    names = sorted(path.stem for path in LUA.glob("*.lua"))
    assert all(load(name).source.isascii() for name in names)
    assert {name: load(name).digest for name in names} == DIGESTS
