"""Layer 6, the API: signatures, docstrings, and one call of the driver in each.

``sync`` is generated from ``aio``, but for the ``with`` blocks of `scope`.
"""
