"""Benchmarks of locks, other primitives and scripts: the method, and the doubts about its figures.

**Method.** Every contender (see `contenders`) runs as one or more client processes that all compete for one lock. The
clients prepare, start together, contend for 0.2 s unmeasured, and then for the requested duration. The critical section
is empty unless ``--hold`` sets a duration. All contenders use one server, and measurements are interleaved: each round
measures every contender at every client count, in an order that rotates from round to round, so that other load on the
machine affects all contenders. Each client records when an acquire returned and when it called release, on the
machine-wide monotonic clock; the parent process merges the records. The figures are

- acquires per second: the median of the rounds, with the smallest and the largest;
- tries per second: the requests of a polling contender, successful or not; for the others every acquire is one try;
- fairness: the acquires of the client with the fewest, divided by those of the client with the most;
- handoff: the time from the call of release in one client to the return of the next acquire in another;
- exclusion: two certain holds that overlap are reported as a violation, and the command fails;
- ratios to the floor (our own scripts over a bare socket: the limit set by the server and the machine) and to the
  classic Lua form, each computed within a round, so that a slow minute affects both sides of the ratio.

**Doubts.** Clients and server share the cores of one machine: with more clients than cores the scheduler is measured
too, and a contender that sleeps a lot leaves more of the machine to the server than it would on a busy one. There is no
network: a round trip costs tens of microseconds here and hundreds elsewhere, so saved round trips count for more
elsewhere, and saved computation for less. An empty critical section is the hardest case for handoffs and favours unfair
locks: a polling contender gains by letting one client acquire again and again, which is fast and starves the others.
Read the rate together with the fairness. Handoffs are counted between different clients only, so a contender that
rarely switches clients has few of them. The records cost two clock readings per hold, for all contenders alike.
Overlaps shorter than the error of the records are not detected; ``--hold 1`` makes them easier to detect. Trust ratios
more than rates, and medians of many rounds more than either.

**Tasks instead of processes** (``bench async``). The tasks of one asyncio event loop contend, in one process, each with
its own lock (setting `distinct`) or all for one lock (setting `one`). The method is the same, with these differences:

- Connections are opened and scripts loaded before the measurement: each task first acquires a lock of its own. Rivals
  may open any number of connections, and the limit on open files is raised for them; the table shows how many the
  server had.
- The floor is one bare connection shared by many clients that are not tasks (see `baseline_pipeline`), which writes in
  batches. In `one` a handoff costs it one round trip, in which one client releases and another one requests.
- In `one` each hold lasts for one turn of the loop, except in the floor; otherwise two tasks of one loop could never be
  observed to hold the lock at once. The cost of that turn was smaller than the differences between rounds.
- Waiters are cancelled at the end, and their unfinished acquires are not counted: a lock that only a few clients
  acquire within the duration has a fairness of 0, and handoffs only if there were any.
- One process uses one core: with many tasks the client code is measured, unless the server is the bottleneck. Garbage
  collection stays enabled, and its pauses count.
- The memory of a waiter is the growth of the resident memory of a fresh process while many tasks start to wait for a
  held lock, divided by their number: `process_metrics` gives the reasons, and `memory` says what is not included.

A failure of a rival (too many connections, an error, a hang) is reported for that measurement, and the others continue.

**A crowd** (``bench crowd``) measures Handfast alone: it shows that a long queue stays in order on one connection, and
what it costs the server. The times are the server's own, from its slow log; the longest of ten thousand reflects the
scheduler rather than the script.

**A semaphore** (``bench semaphore``) is measured like a lock, by processes that take one permit at a time. There are no
handoff figures, since clients cannot observe which permit passed to which client. Exclusion means that holders never
exceed the limit; the first forms of the listings are known to violate it, which is reported but is not a failure. As
many clients as permits do not contend, and polling contenders perform best there.

**Rate limiters** (``bench limiter``) are measured with as many calls as processes can make, with threads that wait, and
by the memory of an admission; `limiting` describes the three parts. Contenders do not promise the same: GCRA remembers
one number and lets a burst in besides its rate, the others remember each admission. Read the rate together with that.

**The classic listings** (``bench classic``) have their own package, `handfast_lab.bench.classic`. **A cluster**
(``bench cluster``) is compared with one server; `cluster` has its method. With all servers and clients on the cores of
one machine its rates show what a cluster costs, never what several machines gain.
"""
