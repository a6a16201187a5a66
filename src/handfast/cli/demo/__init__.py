"""The demonstration: four short acts in which real processes compete, and a table of what they showed.

`play` puts the acts on one after the other. An act gives orders to worker processes (`crew`, `worker`), watches what
becomes of what they share (`shared`), moves a picture (`timeline`) and ends with findings (`records`). Workers end with
the demo, however that ends: each reads its orders from a pipe, and the kernel closes the pipe for us if need be.

A rim of the house: it may know every floor, and no floor knows it.
"""
