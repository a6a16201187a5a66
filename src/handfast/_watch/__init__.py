"""Repeated looks at all names of a server, what is wrong, and acts: for the exporter, ``handfast top`` and the page."""
