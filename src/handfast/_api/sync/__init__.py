# Generated from _api/aio/__init__.py by tools/unasync.py: edit that file and run the tool.
"""The sync API."""
