"""The tests as a user who may do nothing but what `handfast acl` prints: ``HANDFAST_TEST_USER=least``.

That user is the server's ``default`` one, so whoever names no user is it: clients of both APIs, processes, users of
redis-py. Its rights are those of the module under test, so each use is seen to need no other's. `raw` is an operator.
"""

from __future__ import annotations

import os

import redis

from handfast.acl import NAMESPACED, rights_for

__all__ = ["LEAST", "LEFT_OUT", "confine", "employ", "operators", "refused"]

LEAST = os.environ.get("HANDFAST_TEST_USER") == "least"

OPERATOR = "operator", "secret"

USED = {
    "test_lock": ["lock"],
    "test_renewer": ["lock"],
    "test_sync_faults": ["lock"],
    "test_aio_cancel": ["lock"],
    "test_aio_faults": ["lock"],
    "test_aio_lifetime": ["lock"],
    "test_aio_loss": ["lock"],
    "test_rlock": ["lock", "rwlock"],
    "test_semaphore": ["lock", "rwlock", "semaphore"],
    "test_rwlock": ["lock", "rwlock", "semaphore"],
    "test_lock_all": ["lock", "lock_all"],
    "test_family_cancel": ["lock", "lock_all", "rwlock", "semaphore"],
    "test_machines": list(NAMESPACED),
    "test_interleavings": list(NAMESPACED),
    "test_autocomplete": ["autocomplete"],
    "test_scores": ["scores"],
    "test_compat": ["compat"],
    "test_compat_faults": ["compat"],
    "test_fencing": ["fencing", "lock"],
    "test_fencing_sql": ["lock"],
    "test_cli_run": ["lock"],
    "test_cli_run_family": ["lock", "rwlock", "semaphore"],
}
"""What the modules use. Those that are not named here run other scripts than ours, or ours as the operator: they may do
everything. Keys of a user's own have all kinds of names in the tests, so all of them are granted."""

NAMESPACES = {
    "test_lock": ["one", "two"],
    "test_rlock": ["other"],
    "test_rwlock": ["other"],
    "test_autocomplete": ["billing"],
    "test_scores": ["billing"],
    "test_cli_run": ["other"],
}
"""Where else than in the default one they use it."""

MORE = {
    # Its processes look for each other in a script of their own.
    "test_lock_all": ["~inside:*", "+hincrby", "+script|load"],
    # It looks behind the scenes without an operator.
    "test_machines": ["+flushall", "+@read"],
    # What users of redis-py do besides, and redis-py's own lock, which ours is held against.
    "test_fencing": ["+multi", "+exec", "+watch", "+unwatch", "+scan"],
    "test_compat": ["+ping", "+keys", "+script|load"],
    "test_compat_faults": ["+ping", "+echo"],
}
"""What the tests do themselves."""

LEFT_OUT = {"test_machines::test_a_mistake_is_caught": "it tests the test, with scripts that do more than ours"}
"""Tests that are not for this user, and why."""


def operators(url):
    """The URL with which the server is looked after."""
    name, password = OPERATOR
    return url.replace("unix://", f"unix://{name}:{password}@") if LEAST else url


def employ(url):
    """Make the operator, on a new server."""
    name, password = OPERATOR
    with redis.Redis.from_url(url) as everybody:
        everybody.execute_command("ACL", "SETUSER", name, "reset", "on", f">{password}", "~*", "&*", "+@all")


def confine(url, module):
    """Let whoever names no user do what that module needs; everything, if it is none of those that are named."""
    rules = ["allkeys", "allchannels", "+@all"]
    if module in USED:
        keys = ["*"] if set(USED[module]) - set(NAMESPACED) else []
        rules = list(rights_for(USED[module], keys=keys).rules())
        for namespace in NAMESPACES.get(module, ()):
            # Only what is granted: what is taken away first, is taken away once.
            rules += [rule for rule in rights_for(USED[module], namespace=namespace).rules() if rule[0] in "~&"]
        rules += MORE.get(module, [])
    with redis.Redis.from_url(operators(url)) as operator:
        operator.execute_command("ACL", "SETUSER", "default", "reset", "on", "nopass", *rules)


def refused(operator):
    """What was refused to whoever named no user since this was asked last: some refusals are seen by nobody else."""
    found = [
        f"{entry['reason']} {entry['object']}"
        for entry in operator.acl_log()
        # redis-py says what it is, and does not mind that it may not.
        if entry["username"] == "default" and not entry["object"].startswith("client")
    ]
    operator.acl_log_reset()
    return found
