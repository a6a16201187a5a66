# Generated from _structures/aio/__init__.py by tools/unasync.py: edit that file and run the tool.
"""The structures for sync code."""
