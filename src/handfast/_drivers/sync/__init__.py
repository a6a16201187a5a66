"""The sync driver: a pool of connections, protocols performed in the caller's thread, and one renewal thread."""
