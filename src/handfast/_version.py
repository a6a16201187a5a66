"""The version of the package, which connections tell the server. Knows no other module."""

__version__ = "0.1.0"
