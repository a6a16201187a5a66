"""Layer 5: data with names, beside what coordinates: an autocomplete index, and scores that only grow.

Each has its calls and its protocol in one module, and its class for each API in ``aio`` and ``sync``, of which the
latter is generated. The driver sends the calls as it sends those of a lock, so a lost reply does no harm.
"""
