"""Floor 3: doing it.

Sessions, waiting, renewal, undo and the embedded server. The only floor that touches redis, sockets, threads,
tasks, processes and clocks. It decides nothing that a protocol of floor 2 can decide.
"""
