"""``handfast top``: holders, waiters and problems in a terminal.

`command` looks in a thread and reads keys. `frames` makes lines of cells of the last look, `cells` makes text of
them, and `terminal` writes those that have changed.
"""
