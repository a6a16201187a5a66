"""Repeated looks at all names of a server, the problems found, and acts: for the exporter, ``handfast top`` and the page."""
