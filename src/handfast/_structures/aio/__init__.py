"""The structures for asyncio."""  # asyncio only
# sync only: """The structures for sync code."""
