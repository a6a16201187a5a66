"""The torture chamber: faults injected on real servers, histories checked, and what came of it published.

A trial (``trials/``) provokes one kind of fault many times and counts what must not happen. The campaign runs clients of
every primitive and API under every fault and hands their histories to the checkers. Both give `Figure`s, which stay
in ``reliability/*.json``; ``docs/results/reliability.md`` is made from these and from nothing else.
"""
