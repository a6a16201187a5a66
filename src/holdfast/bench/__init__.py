"""Measuring locks against each other, and with which doubt.

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
"""
