"""Mutants of the Lua scripts: how they are made, and how they are put to the tests. See ``tools/mutate_scripts.py``."""
