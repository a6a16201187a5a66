"""Handfast in frameworks, one package each, with an extra of the same name. Nothing of Handfast imports them."""
