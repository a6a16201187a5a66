"""The classic listings against their modern forms: the published tables, made again on the reader's machine.

**The house.** A *table* is one job of the listings, and each of its *contenders* does it in its own way: `locks`,
`guilds`, `semaphores` and `market` say how; `actor` says what they have in common, `tables` lists them. `runner` turns
contenders into client processes and the order in which they are measured, `figures` turns what they counted into rows,
`published` has the figures of others. `text`, `plots` and `report` show it all.

**What is counted.** A success is what a client wanted: the lock, an answer, a place, a purchase. A try is each time that
it asked for it; a poller asks again and again. A retry is a WatchError, which makes the first forms start over within
one try. Each is counted from outside, by the client that a listing is given, so the listings are measured as they are.
What ended after the time was over counts no more.

**What must hold.** Every hold of a lock or a place is noted on the machine-wide monotonic clock, and two that overlap
where they must not fail the command; only the first form's semaphores, known to lose places, are told and not blamed.
When a measurement of the market is over all items and funds must be there, and a guild must have the members it had.

How the figures are to be read, and with which doubt, stands in the report (`report.html` of this package), where the
reader sees them.
"""
