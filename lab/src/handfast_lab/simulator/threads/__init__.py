"""A client of the sync colour in virtual time: a connection for each caller that waits, and a keeper with its own.

The counterpart of drivers/sync, module by module; what it says there about why holds here.
"""
