"""The objects of the asyncio colour, and the source of the sync ones: see ``tools/unasync.py``."""
