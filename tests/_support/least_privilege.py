"""The gate runs as a user with only the rights that `handfast acl` prints, ``HANDFAST_TEST_USER=all`` with all of them.

That user is the server's ``default`` user, so every client that names no user is it: clients of both APIs, child
processes, clients of redis-py. It has the rights of the module under test and no others. `raw` is an operator. Modules
that are not in USED have all rights: they call scripts that are not the product's, or call them as the operator.
"""

from __future__ import annotations

import contextlib
import os

import redis

from handfast.acl import NAMESPACED, rights_for

__all__ = ["confine", "employ", "operators", "refused", "used_by"]

LEAST = os.environ.get("HANDFAST_TEST_USER") != "all"

OPERATOR = "operator", "secret"

USED = {
    "test_lock": ["lock"],
    "test_renewer": ["election", "lock", "semaphore"],
    "test_election": ["election"],
    "test_group": ["group"],
    "test_partition": ["group", "partition"],
    "test_slot": ["semaphore"],
    "test_preempt": ["lock", "lock_all", "semaphore"],
    "test_head_start": ["limiter", "lock", "once", "rwlock", "semaphore"],
    "test_hold": ["election", "lock", "names", "once", "rwlock", "semaphore"],
    "test_together": ["limiter", "lock", "lock_all", "rwlock", "semaphore"],
    "test_tries": ["limiter", "lock", "lock_all", "once", "rwlock", "semaphore"],
    "test_force_release": ["election", "group", "lock", "names", "once", "rwlock", "semaphore"],
    "test_lost_calls": ["lock", "semaphore"],
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
    "test_names": ["lock", "lock_all", "names", "once", "rwlock", "semaphore", "autocomplete", "scores"],
    "test_budget": ["budget", "operate"],
    "test_names_of_all_kinds": ["budget", "debounce", "latch", "limiter", "once", "operate"],
    "test_cli_budget": ["budget", "operate"],
    "test_cli_top": ["group", "latch", "limiter", "lock_all", "operate", "rwlock", "semaphore"],
    "test_page": ["election", "group", "limiter", "lock", "once", "operate", "rwlock", "semaphore"],
    "test_cli_all_kinds": ["budget", "debounce", "latch", "limiter", "once", "operate"],
    "test_limiter": ["limiter"],
    "test_once_uses": ["once"],
    "test_once": ["lock", "once"],
    "test_once_faults": ["lock", "once"],
    "test_autocomplete": ["autocomplete"],
    "test_scores": ["scores"],
    "test_compat": ["compat"],
    "test_compat_faults": ["compat"],
    "test_fencing": ["fencing", "lock"],
    "test_fencing_sql": ["lock"],
    "test_cli_run": ["lock", "semaphore"],
    "test_cli_operate": [
        "election",
        "group",
        "lock",
        "lock_all",
        "operate",
        "once",
        "partition",
        "rwlock",
        "semaphore",
    ],
    "test_cli_run_family": ["lock", "rwlock", "semaphore"],
    "test_cli_limit": ["limiter"],
    "test_cli_elect": ["election"],
    "test_cli_once": ["once"],
    "test_cli_policies": ["lock"],
    "test_cli_hold": ["lock", "operate", "semaphore"],
}
"""What each module uses. Keys of users have all kinds of names in the tests, so every name is granted to them."""

NAMESPACES = {
    "test_lock": ["one", "two"],
    "test_rlock": ["other"],
    "test_rwlock": ["other"],
    "test_autocomplete": ["billing"],
    "test_scores": ["billing"],
    "test_cli_operate": ["other"],
    "test_cli_run": ["other"],
    "test_cli_limit": ["other"],
    "test_cli_once": ["other"],
}
"""The namespaces that a module uses besides the default one."""

MORE = {
    # Its processes look for each other with a script of the test.
    "test_lock_all": ["~inside:*", "+hincrby", "+script|load"],
    # It inspects the server without an operator.
    "test_machines": ["+flushall", "+@read"],
    # Other commands of redis-py, and redis-py's own lock, with which the drop-in is compared.
    "test_fencing": ["+multi", "+exec", "+watch", "+unwatch", "+scan"],
    "test_compat": ["+ping", "+keys", "+script|load"],
    "test_compat_faults": ["+ping", "+echo"],
}
"""Rights for what the tests themselves do."""

EVERYTHING = "~*", "&*", "+@all"


def used_by(module):
    """Return what a module of the gate uses, or None if it has all rights. The questions are asked of every kind."""
    _, folder, *_, name = module.split(".")
    used = list(NAMESPACED) if ".questions." in module else USED.get(name)
    return used if LEAST and folder == "gate" else None


def operators(url):
    """Return the URL of the operator."""
    name, password = OPERATOR
    return url.replace("unix://", f"unix://{name}:{password}@")


def employ(url):
    """Create the operator on a new server."""
    name, password = OPERATOR
    with redis.Redis.from_url(url) as client:
        client.execute_command("ACL", "SETUSER", name, "reset", "on", f">{password}", *EVERYTHING)


@contextlib.contextmanager
def confine(url, module):
    """Give the default user the rights that the module needs, and all rights at the end."""
    used, name = used_by(module), module.rpartition(".")[2]
    keys = ["*"] if set(used) - set(NAMESPACED) else []
    rules = list(rights_for(used, keys=keys).rules())
    for namespace in NAMESPACES.get(name, ()):
        # Only what is granted: the rules that take rights away stand at the start, once.
        rules += [rule for rule in rights_for(used, namespace=namespace).rules() if rule[0] in "~&"]
    _grant(url, rules + MORE.get(name, []))
    yield
    _grant(url, EVERYTHING)


def _grant(url, rules):
    """Give the default user these rights and no others."""
    with redis.Redis.from_url(operators(url)) as operator:
        operator.execute_command("ACL", "SETUSER", "default", "reset", "on", "nopass", *rules)


def refused(operator):
    """Return what the server refused to the default user since the last call. Clients do not report every refusal."""
    found = [
        f"{entry['reason']} {entry['object']}"
        for entry in operator.acl_log()
        # redis-py sends CLIENT SETINFO and ignores the refusal.
        if entry["username"] == "default" and not entry["object"].startswith("client")
    ]
    operator.acl_log_reset()
    return found
