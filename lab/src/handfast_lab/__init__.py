"""The laboratory of Handfast: benchmarks, fault trials, a simulator, history checkers and mutation testing."""

__version__ = "0.1.0"
