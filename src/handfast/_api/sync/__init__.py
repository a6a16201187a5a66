"""The objects of the sync colour."""
