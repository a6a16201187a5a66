"""``handfast demo``: five short acts in which real processes compete for locks and for a rate, and a table of what they showed.

`play` runs the acts one after the other. An act sends orders to worker processes (`worker`), reads the data that they share
(`shared`), redraws a picture (`timeline`, `bars`) and yields findings (`records`). The workers are children of
`handfast.testing.ProcessGroup`, which end with the demo, even if that is killed.
"""
