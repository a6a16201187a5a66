"""``handfast top``: who holds and waits, and what is wrong, in a terminal.

`command` looks in a thread and reads keys. `frames` makes lines of cells from what was seen, `cells` makes text of
them, and `terminal` writes those that have changed.
"""
