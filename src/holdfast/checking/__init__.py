"""Histories of operations, and what must be true of them.

Nothing in here knows of clients, drivers or chance. A checker takes a history, from a real server or from the simulator,
and gives what is wrong with it: an empty list is the answer that one hopes for.
"""
