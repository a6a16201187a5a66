"""See and step in: ``handfast ls``, ``show``, ``release`` and ``extend``.

The first three look through `Handfast.names`. `words` and `objects` write the findings, for people and for programs;
`table` fits it to a terminal.
"""
