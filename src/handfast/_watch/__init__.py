"""Looks at what the server knows of all names, for those who watch it: ``handfast exporter``."""
