"""Measuring locks, their relatives and scripts against each other, and with which doubt.

**How.** Every contender (see `contenders`) runs as processes, one client each, that all want one lock. They are made
ready, start together, contend for 0.2 s unmeasured, and then for the seconds asked for. The critical section is empty
unless ``--hold`` says otherwise. All contenders use one server, and measurements are interleaved: a round has every
contender at every client count, in an order that turns from round to round, so that whatever else the machine does
meets all of them. Each client notes when an acquire has returned and when a release is about to be called, on the
machine-wide monotonic clock; the parent merges the notes. From them come

- acquires per second, the median of the rounds with the smallest and the largest;
- tries per second: what a polling contender asks for, in vain or not; for the others a try is an acquire;
- fairness: the acquires of the client that got fewest, divided by those of the one that got most;
- handoff: from the call of a release in one client to the return of the next acquire in another;
- exclusion: two certain holds that overlap are reported as a violation, and the command fails;
- ratios to the wire floor (our own scripts over a bare socket: what the server and the machine allow) and to the
  classic Lua form, each taken within a round, so that a slow minute hurts both sides of it.

**With which doubt.** Clients and server share the cores of one machine: with more clients than cores it is the
scheduler that is measured as well, and a contender that sleeps a lot leaves more of the machine to itself than it would
have on a busy one. There is no network: round trips cost tens of microseconds here and hundreds elsewhere, so savings of
round trips count for more elsewhere, and those of computing for less. An empty critical section is the hardest case for
handing over and the kindest to unfairness: whoever polls wins by letting one client acquire again and again, which is
fast, and starves the others; read the rate together with the fairness. Handoffs are only what happens between different
clients, so a contender that rarely hands over has few of them. Notes cost two readings of the clock per hold, for all
contenders alike. An overlap shorter than the notes' own distance from the truth is not seen; ``--hold 1`` looks harder.
Trust ratios before rates, and medians of many rounds before both.

**Tasks instead of processes** (``bench async``). One process with one event loop, the loop that asyncio comes with; its
tasks contend, each with a lock of its own (the setting `distinct`) or all for one (`one`). What was said above holds but
for this:

- Connections are made and scripts loaded before anything counts: each task first takes a lock of its own. Rivals may
  have as many connections as they want, with the limit on open files raised for them; the table says how many the server
  saw.
- The wire floor is one bare connection that many clients share without being tasks (see `pipeline`): what leaves, leaves
  together. Where all want one lock a handover costs it one round trip, in which one client releases and another asks.
- In `one` the lock is held for one turn of the loop, but by the floor for none; without that, no two tasks of one loop
  could be seen to hold it at once. What it costs was looked for and was less than the rounds differ.
- Those who still wait when the time is over are cancelled, so what they waited for is not counted: a lock with which
  nobody but a few get in within the time has a fairness of 0, and no handoff where there was none.
- One process can use one core: with many tasks it is the client's code that is measured, where the server does not set
  the pace. Garbage is collected as ever, and a pause for it counts.
- The memory of a waiter is the growth of a fresh process's real memory while that many come to wait for a held lock,
  divided by their number: see `gauges` for why, and `memory` for what is left out.

A rival that cannot do it (too many connections, an error, no end) is reported for that measurement, and the rest goes
on.

**A crowd** (``bench crowd``) is one measurement of Handfast alone and no comparison: that a long line is kept in order,
on one connection, and what it costs the server. Its times are the server's own, by its slow log; the longest of ten
thousand shows when the scheduler took the core away rather than what the script does.

**A semaphore** (``bench semaphore``) is measured as a lock is, by processes that take one permit each time. There are no
handoffs, since nobody can tell from outside whose permit went to whom, and to exclude is to let in no more than the limit:
the first forms of the listings are known to fail at that, which is told and fails nobody. As many clients as permits do
not contend, and pollers are at their best there. Then permits are counted while their holders are killed; this is a trial
of Handfast alone, and its rate says little: much of its time passes while leases of the dead run out. The module
`conservation` says what is looked at. **Readers and writers** (``bench rwlock``) and **several locks at once** (``bench
lock-all``) compare Handfast with itself: with a plain lock for readers and writers alike, and with locks inside locks.
What they say holds for their load, which is the one where everybody always wants in: see the modules `rwlock` and
`pairs`. Waits are what the clients saw, so the longest one is that of the scheduler as well; an overlap is seen when it
lasts longer than a look at the clock, which is why those who are in stay there for a moment.

**The classic listings** (``bench classic``) have a package of their own, `handfast_lab.bench.classic`; its report says how,
and with which doubt. **A million names** and **a million scores** (``bench names``, ``bench scores``) are one client and
one thing each: the modules `names` and `scores` say what is counted.
"""
