"""The asyncio driver: one connection per event loop for all of its tasks, and a renewer that is a timer of the loop."""
