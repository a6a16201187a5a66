"""See and step in: ``handfast ls``, ``show``, ``release`` and ``extend``.

The first three look through `Handfast.names`. `words` and `objects` say what was found, to people and to programs;
`table` fits it to a terminal.
"""
