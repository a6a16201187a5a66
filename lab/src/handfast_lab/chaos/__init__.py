"""Reliability tests: inject faults on real servers, check recorded histories, and publish the results.

A trial (``trials/``) provokes one kind of fault many times and counts failures. The campaign runs clients of every
primitive and API under every fault and passes their histories to the checkers. Both return `Figure`s, which are stored
in ``reliability/*.json``. ``docs/results/reliability.md`` is generated from these files alone.
"""
