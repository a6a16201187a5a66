"""Names and namespaces that are meant to break out: their keys stay apart, and rights to one open nothing of another."""

from __future__ import annotations

import random

import redis

from handfast._engine.keys import KeySet, control_channel, inbox_channel
from handfast.acl import rights_for
from handfast_lab.chaos.trials import names
from handfast_lab.rivals import OURS


def test_trial_finds_names_whose_keys_collide(monkeypatch):
    monkeypatch.setattr("handfast._engine.keys.encode_name", lambda text, *_, **__: text)
    monkeypatch.setattr(
        names, "hostile", lambda chance: "".join(chance.choices(["a", ":", "lock", "{", "}", "*"], k=3))
    )
    keys, slots, rights = names.trial(OURS, 2000, 0, lambda _: None)
    assert keys.bad
    assert slots.bad
    assert rights.bad


def test_server_confines_each_user_to_its_namespace(raw, server):
    chance = random.Random(1)
    spaces = list(
        {names.hostile(chance) for _ in range(30)} | {"hf", "h*", "h?", "hf:lock", "{hf", "hf}", "[h]f", "h\\f"}
    )
    words = {
        space: (
            ["ZCOUNT", KeySet(space, "lock", names.hostile(chance)).key("tokens"), 0, 1],
            ["PUBLISH", inbox_channel(space, "c", 1), "x"],
            ["PUBLISH", control_channel(space, "c"), "x"],
        )
        for space in spaces
    }
    try:
        for mine in spaces:
            rules = rights_for(["lock"], namespace=mine).rules()
            raw.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rules)
            with redis.Redis.from_url(server.url.replace("unix://", "unix://app:secret@")) as client:
                pipeline = client.pipeline(transaction=False)
                for space in spaces:
                    for command in words[space]:
                        pipeline.execute_command(*command)
                answers = pipeline.execute(raise_on_error=False)
            opened = [isinstance(answer, int) for answer in answers]
            assert opened == [space == mine for space in spaces for _ in range(3)]
    finally:
        raw.acl_deluser("app")
        raw.acl_log_reset()
