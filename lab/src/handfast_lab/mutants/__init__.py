"""Mutants of the Lua scripts: how they are made, and how they are put to the tests.

See ``handfast_lab/mutants/__main__.py``.
"""
