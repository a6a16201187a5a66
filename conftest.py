"""The fixtures of both suites: the product's in ``tests/`` and the laboratory's in ``lab/tests/``."""

pytest_plugins = ["tests._support.fixtures"]
