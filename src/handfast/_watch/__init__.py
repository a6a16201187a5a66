"""Repeated looks at all names of a server, for ``handfast exporter``."""
