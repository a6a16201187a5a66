"""Layer 6, the API: signatures and docstrings; each method calls the driver.

``sync`` is generated from ``aio``, but for the ``with`` blocks of `scope`.
"""
