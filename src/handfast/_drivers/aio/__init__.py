"""The asyncio colour of floor 3: one multiplexed session per event loop, and no task of its own but to connect."""
