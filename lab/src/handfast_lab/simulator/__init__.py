"""The engine in virtual time: the real protocols and the real scripts, with a fault at every call if a seed will have it.

A seed makes a plan: some clients, what each of them does, and what goes wrong. The plan is run by a scheduler in virtual
time, so a minute takes a millisecond, and the same seed takes the same course, byte for byte, wherever it is run. What must
be true at every instant is looked at after every script.

What runs is what users run, as far down as it decides anything: the generators of ``protocol/``, the packing of
``_engine/calls.py`` and the scripts, in a real Lua 5.1. Three things stand in for what cannot be had in virtual time, each
held against what it stands for: ``server.lua`` for the server's commands (a differential test runs both), ``client.py`` for
the drivers, and ``world.py`` for the network and the clocks.

    server      the model of a server
    world       virtual time, tasks, processes, the network
    client      the driver
    faults      what may happen at a call, and which checks hold under what
    plans       from a seed to who does what
    invariants  what is looked at (and ``invariants.lua``: after every script)
    hunt        many seeds, on several processors
    planted     broken variants, all of which are to be caught

It needs the extra ``torture``. ``python -m handfast_lab.simulator 12345`` replays one seed and shows it.
"""
