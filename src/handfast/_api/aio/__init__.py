"""The asyncio API, from which tools/unasync.py makes the sync API."""  # asyncio only
# sync only: """The sync API."""
