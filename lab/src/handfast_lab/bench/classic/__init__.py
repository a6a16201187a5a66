"""The classic listings against their modern forms: the published tables, measured again on this machine.

**Structure.** A *table* is one operation of the listings, which each of its *contenders* performs in its own way.
`tables` declares them all; `guilds` and `market` have the clients of two, the others are those of `bench lock` and
`bench semaphore`. `published` has the published figures. `text`, `plots` and `report` present the results.

**Counts.** A success is a completed operation: a lock acquired, an answer, a permit, a purchase. A try is one request
for it; a polling contender needs several. A retry is a WatchError, after which the first forms start over within the
same try. All are counted outside the listing, by the client object passed to it, so the listings run unchanged.
Operations that succeed after the measured period do not count.

**Checks.** Every hold of a lock or permit is recorded on the machine-wide monotonic clock, and an overlap beyond the
limit fails the command; only the first form's semaphores, known to exceed their limit, are reported without a failure.
After each measurement of the market all items and funds must exist, and a guild must still have its original members.

The report (`report.html` in this package) tells its readers how to interpret the figures, and their doubts.
"""
