"""The servers' commands: which arguments are keys, which commands write, and which must not be used in a script.

`tests/gate/lint/test_lint_tables.py` compares these tables with real servers.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "ALL_KEYS",
    "BLOCKING",
    "CLEANUP",
    "INTEGER_REPLIES",
    "KNOWN",
    "NOT_IN_SCRIPTS",
    "RANDOM",
    "TEXT_REPLIES",
    "WRITING",
    "key_places",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


PLACES = {
    "": """
        ACL ASKING AUTH BGREWRITEAOF BGSAVE CLIENT CLUSTER CLUSTERSCAN COMMAND COMMANDLOG CONFIG DBSIZE DEBUG DISCARD ECHO
        EXEC FAILOVER FLUSHALL FLUSHDB FUNCTION HELLO HOTKEYS INFO KEYS LASTSAVE LATENCY LOLWUT MODULE MONITOR MULTI
        PFSELFTEST PING PSUBSCRIBE PSYNC PUBLISH PUBSUB PUNSUBSCRIBE QUIT RANDOMKEY READONLY READWRITE REPLCONF REPLICAOF
        RESET ROLE SAVE SCAN SCRIPT SELECT SHUTDOWN SLAVEOF SLOWLOG SPUBLISH SSUBSCRIBE STRALGO SUBSCRIBE SUNSUBSCRIBE SWAPDB
        SYNC TIME UNSUBSCRIBE UNWATCH WAIT WAITAOF""",
    "1": """
        APPEND BITCOUNT BITFIELD BITFIELD_RO BITPOS DECR DECRBY DELEX DELIFEQ DIGEST DUMP EXPIRE EXPIREAT EXPIRETIME GEOADD
        GEODIST GEOHASH GEOPOS GEORADIUSBYMEMBER_RO GEORADIUS_RO GEOSEARCH GET GETBIT GETDEL GETEX GETRANGE GETSET HDEL
        HEXISTS HEXPIRE HEXPIREAT HEXPIRETIME HGET HGETALL HGETDEL HGETEX HINCRBY HINCRBYFLOAT HKEYS HLEN HMGET HMSET
        HPERSIST HPEXPIRE HPEXPIREAT HPEXPIRETIME HPTTL HRANDFIELD HSCAN HSET HSETEX HSETNX HSTRLEN HTTL HVALS INCR INCRBY
        INCRBYFLOAT INCREX LINDEX LINSERT LLEN LPOP LPOS LPUSH LPUSHX LRANGE LREM LSET LTRIM MOVE PERSIST PEXPIRE PEXPIREAT
        PEXPIRETIME PFADD PSETEX PTTL RESTORE RESTORE-ASKING RPOP RPUSH RPUSHX SADD SCARD SET SETBIT SETEX SETNX SETRANGE
        SISMEMBER SMEMBERS SMISMEMBER SPOP SRANDMEMBER SREM SSCAN STRLEN SUBSTR TTL TYPE XACK XACKDEL XADD
        XAUTOCLAIM XCFGSET XCLAIM XDEL XDELEX XLEN XNACK XPENDING XRANGE XREVRANGE XSETID XTRIM ZADD ZCARD ZCOUNT ZINCRBY
        ZLEXCOUNT ZMSCORE ZPOPMAX ZPOPMIN ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREM ZREMRANGEBYLEX
        ZREMRANGEBYRANK ZREMRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN ZSCORE
        ARCOUNT ARDEL ARDELRANGE ARGET ARGETRANGE ARGREP ARINFO ARINSERT ARLASTITEMS ARLEN ARMGET ARMSET ARNEXT AROP ARRING
        ARSCAN ARSEEK ARSET VADD VCARD VDIM VEMB VGETATTR VINFO VISMEMBER VLINKS VRANDMEMBER VRANGE VREM VSETATTR VSIM""",
    "1 2": "BLMOVE BRPOPLPUSH COPY GEOSEARCHSTORE LCS LMOVE RENAME RENAMENX RPOPLPUSH SMOVE ZRANGESTORE",
    "2": "MEMORY OBJECT PFDEBUG XGROUP XINFO",
    "3": "MIGRATE",
    "1-": "DEL EXISTS MGET PFCOUNT PFMERGE SDIFF SDIFFSTORE SINTER SINTERSTORE SUNION SUNIONSTORE TOUCH UNLINK WATCH",
    "1-last": "BLPOP BRPOP BZPOPMAX BZPOPMIN",
    "1-pairs": "MSET MSETNX",
    "2-": "BITOP",
    "count1": "LMPOP SINTERCARD ZDIFF ZINTER ZINTERCARD ZMPOP ZUNION",
    "count1-pairs": "MSETEX",
    "count2": "BLMPOP BZMPOP EVAL EVALSHA EVALSHA_RO EVAL_RO FCALL FCALL_RO",
    "1 count2": "ZDIFFSTORE ZINTERSTORE ZUNIONSTORE",
    "streams": "XREAD XREADGROUP",
    "1 store": "GEORADIUS GEORADIUSBYMEMBER SORT SORT_RO",
}
"""Commands by the positions of their keys among the arguments, counted from 1.

"1-": all from the first on; "-last": without the last; "-pairs": every other one; "count1": as many as the first
argument says; "streams": the first half of the arguments after STREAMS; "store": the argument after STORE or STOREDIST.
"""

KNOWN = {name: places for places, names in PLACES.items() for name in names.split()}
"""Every command of Redis up to 8.8 and Valkey up to 9.1, without those of modules."""

WRITING = _words(
    """
    APPEND BITFIELD BITOP BLMOVE BLMPOP BLPOP BRPOP BRPOPLPUSH BZMPOP BZPOPMAX BZPOPMIN COPY DECR DECRBY DEL DELEX DELIFEQ
    EXPIRE EXPIREAT FLUSHALL FLUSHDB GEOADD GEORADIUS GEORADIUSBYMEMBER GEOSEARCHSTORE GETDEL GETEX GETSET HDEL HEXPIRE
    HEXPIREAT HGETDEL HGETEX HINCRBY HINCRBYFLOAT HMSET HPERSIST HPEXPIRE HPEXPIREAT HSET HSETEX HSETNX INCR INCRBY
    INCRBYFLOAT INCREX LINSERT LMOVE LMPOP LPOP LPUSH LPUSHX LREM LSET LTRIM MIGRATE MOVE MSET MSETEX MSETNX PERSIST PEXPIRE
    PEXPIREAT PFADD PFDEBUG PFMERGE PSETEX RENAME RENAMENX RESTORE RESTORE-ASKING RPOP RPOPLPUSH RPUSH RPUSHX SADD
    SDIFFSTORE SET SETBIT SETEX SETNX SETRANGE SINTERSTORE SMOVE SORT SPOP SREM SUNIONSTORE SWAPDB UNLINK XACK XACKDEL XADD
    XAUTOCLAIM XCLAIM XDEL XDELEX XGROUP XNACK XREADGROUP XSETID XTRIM ZADD ZDIFFSTORE ZINCRBY ZINTERSTORE ZMPOP ZPOPMAX
    ZPOPMIN ZRANGESTORE ZREM ZREMRANGEBYLEX ZREMRANGEBYRANK ZREMRANGEBYSCORE ZUNIONSTORE
    ARDEL ARDELRANGE ARINSERT ARMSET ARRING ARSEEK ARSET VADD VREM VSETATTR
    """
)

CLEANUP = _words("EXPIRE EXPIREAT PEXPIRE PEXPIREAT LTRIM XTRIM ZREMRANGEBYSCORE ZREMRANGEBYRANK")
"""Writes that do no harm if the script fails later: they remove expired data, or set a TTL."""

ALL_KEYS = {
    "KEYS": "iterates over all keys of the server: keep an index in a key of its own",
    "SCAN": "iterates over all keys of the server: keep an index in a key of its own",
    "CLUSTERSCAN": "iterates over all keys of the cluster: keep an index in a key of its own",
    "RANDOMKEY": "picks any key of the server: keep an index in a key of its own",
    "DBSIZE": "counts all keys of one server: keep a count in a key of its own",
    "FLUSHALL": "empties the server: leave that to an operator",
    "FLUSHDB": "empties the database: leave that to an operator",
    "SWAPDB": "swaps whole databases: leave that to an operator",
}
"""Commands on all keys of a server, and what to do instead."""

BLOCKING = {
    "BLMOVE": "LMOVE",
    "BLMPOP": "LMPOP",
    "BLPOP": "LPOP",
    "BRPOP": "RPOP",
    "BRPOPLPUSH": "RPOPLPUSH",
    "BZMPOP": "ZMPOP",
    "BZPOPMAX": "ZPOPMAX",
    "BZPOPMIN": "ZPOPMIN",
    "WAIT": "",
    "WAITAOF": "",
}
"""Commands that block, and the ones that do the same without blocking."""

NOT_IN_SCRIPTS = _words(
    """
    ACL ASKING AUTH BGREWRITEAOF BGSAVE CLIENT CONFIG DEBUG DISCARD EVAL EVALSHA EVALSHA_RO EVAL_RO EXEC FAILOVER FCALL
    FCALL_RO HELLO HOTKEYS LATENCY MODULE MONITOR MULTI PSUBSCRIBE PSYNC PUNSUBSCRIBE QUIT REPLCONF REPLICAOF RESET ROLE SAVE
    SCRIPT SHUTDOWN SLAVEOF SSUBSCRIBE SUBSCRIBE SUNSUBSCRIBE SYNC UNSUBSCRIBE UNWATCH WATCH
    """
)
"""Commands that some server refuses within a script."""

RANDOM = _words("HRANDFIELD SPOP SRANDMEMBER VRANDMEMBER ZRANDMEMBER")

TEXT_REPLIES = {
    "one": _words(
        """
        GET GETDEL GETEX GETRANGE GETSET HGET HINCRBYFLOAT INCRBYFLOAT LINDEX LMOVE RPOPLPUSH SUBSTR XADD ZINCRBY ZSCORE
        """
    ),
    "items": _words(
        """
        HGETALL HKEYS HMGET HVALS LRANGE MGET SDIFF SINTER SMEMBERS SUNION TIME ZMSCORE ZPOPMAX ZPOPMIN ZRANGE ZRANGEBYLEX
        ZRANGEBYSCORE ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE
        """
    ),
}
"""Commands that reply a string, perhaps of digits, or an array of strings."""

INTEGER_REPLIES = _words(
    """
    APPEND BITCOUNT BITPOS DECR DECRBY DEL EXISTS EXPIRE HDEL HEXISTS HINCRBY HLEN HSET HSETNX INCR INCRBY LINSERT LLEN LPUSH
    LREM PERSIST PEXPIRE PFCOUNT PTTL PUBLISH RPUSH SADD SCARD SETNX SISMEMBER SMOVE SREM STRLEN TTL UNLINK XACK XDEL XLEN
    ZADD ZCARD ZCOUNT ZLEXCOUNT ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE
    """
)


def key_places(name: str, words: Sequence[str | None], given: int) -> list[int]:
    """Return the indexes, from 0, of the arguments of a command that are keys.

    Args:
        name: The command, in capitals.
        words: The constant arguments in capitals, and None for the others.
        given: The number of arguments.

    Returns:
        The indexes. If they depend on an argument that is not constant, only those that are keys in any case.

    """
    found: list[int] = []
    for place in KNOWN.get(name, "").split():
        found += _places(place, words, given)
    return [place for place in found if place < given]


def _places(place: str, words: Sequence[str | None], given: int) -> list[int]:
    kind, _, how = place.partition("-")
    step = 2 if how == "pairs" else 1
    if kind.startswith("count"):
        at = int(kind.removeprefix("count"))
        count = words[at - 1] if at <= len(words) else None
        many = int(count) if count is not None and count.isdecimal() else 1
        return list(range(at, at + many * step, step))
    if kind == "streams":
        at = next((index + 1 for index, word in enumerate(words) if word == "STREAMS"), given)
        return list(range(at, at + max(1, (given - at) // 2)))
    if kind == "store":
        return [index + 1 for index, word in enumerate(words) if index and word in ("STORE", "STOREDIST")]
    first = int(kind) - 1
    if "-" not in place:
        return [first]
    return list(range(first, given - (how == "last"), step))
