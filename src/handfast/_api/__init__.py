"""Floor 4: what users see. Signatures, docstrings and one line each; the work is done below."""
