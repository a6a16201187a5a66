"""Layer 4: perform the protocols.

Sessions, waiting, renewal and undo. The only layer with redis-py, sockets, threads, tasks and clocks. Whatever a
protocol can decide (retries, the outcome of a renewal, the end of a cleanup) is decided in ``_protocol``. The sync and
the asyncio driver have the same parts: connect, session, renewer, driver; asyncio adds inbox, transport and loop
context, sync adds a pool.

Loggers, all below ``handfast``; records carry the lock's name as ``lock`` and a ``reason``, never a token:

    handfast.lease       DEBUG acquired, with fence and seconds waited · DEBUG released, with fence and seconds held ·
                         WARNING a long wait for what the same client holds
    handfast.renewal     DEBUG each failure, and the planned end of a lease without renewal · INFO leases are renewed again ·
                         WARNING leases cannot be renewed (once per outage), a lease is lost ·
                         ERROR a lease without lost callbacks is lost, a callback or the renewal thread failed
    handfast.cleanup     DEBUG a background cleanup was given up · WARNING an undo goes on in the background
"""
