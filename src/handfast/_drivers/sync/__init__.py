"""The sync colour of floor 3: a small pool of sessions, the caller's own thread, and one keeper thread."""
