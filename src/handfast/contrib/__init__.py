"""Handfast in frameworks, one package each, with an extra of the same name. No module of Handfast imports them."""
