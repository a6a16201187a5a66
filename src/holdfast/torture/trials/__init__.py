"""One experiment each: a fault provoked many times, and what must not happen counted."""
