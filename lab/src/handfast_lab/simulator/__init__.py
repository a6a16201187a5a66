"""The library in virtual time: the real asyncio API and driver and the real scripts, with a fault at any command.

A seed makes a plan: some clients, what their callers do, and what goes wrong. Virtual time runs the plan, so a minute
takes a millisecond, and the same seed takes the same course, byte for byte, on every machine. After every script, and
whenever a client learns something, the invariants are checked.

The code that runs is the library's own, from ``AsyncHandfast`` down to the bytes that a connection carries, and the
scripts in a real Lua 5.1. Replaced are the event loop, the connector that opens connections, the clock and the random
bytes; and the server's commands, by a model that a differential test holds against a real server.

    server      the server's commands (``server.lua``) and the scripts
    world       virtual time and processes
    network     connections, and the state that the server is in
    replication the replicas, those who wait for them, and a primary that goes on beside the new one
    cluster     several primaries, slots that move, and nodes that are replaced
    isolation   the clock and the randomness that the library reads
    loop        an asyncio event loop in virtual time
    client      a process with the library in it; its transport and connector
    orders      what a caller may be told to do
    watch       what is checked (and ``invariants.lua``: after every script)
    callers     the callers; ``lease_callers`` are those of locks and their relatives, and note for the checkers of histories what they do
    faults      what may go wrong, and which checks hold under it
    plans       from a seed to orders and faults
    drawing     what all plans draw in the same way
    limiter_plans, limiter_callers, limiter_watch (and ``limits.lua``)   the same four for limiters, one seed in five
    once_plans, once_callers, once_watch (and ``outcomes.lua``)   the same four for keys of ``once``, one seed in five
    simulation  one seed, from its plan to its verdict
    hunt        many seeds, on several processors
    planted     broken variants, all of which must be caught

Out of its reach are the sync driver (threads, its pool of sessions, interrupts; it shares the protocols), the handshake
of the client library, TLS, forks, and other event loops. Histories and trials on real servers cover those
(``handfast_lab.chaos``, ``tests/deep/faults``).

It needs lupa. ``python -m handfast_lab.simulator 12345`` replays one seed and shows it event by event, in one of the
settings that `faults.SETTINGS` lists: one server, the same with scripts that are cut off, replicas, or a cluster.
"""
