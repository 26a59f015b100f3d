"""Which thread runs a step: the caller's, or TensorFlow's pool; told by the clock.

Handing a step to the pool and waiting for it costs more than a small graph's kernels
do. A wide graph wants the pool. Neither can be told from the graph, so both ways are
timed over the first steps, several in a row: the threads of a pool that has just
worked are awake, and take the next step at once. The results are the same to the bit
(see `flushing`).

Short steps are timed more often. What the hand-over costs depends on the processors
that the threads happen to be on, and stays the same for tens of steps: of 15 steps
each way, one training in three chose the slower one. In long runs, such as those of a
hundred steps, it is lost in the noise; but small kernels that the pool passes from
thread to thread may take a third longer than on one, so those are timed as well.

TensorFlow compiles a request for each way, at its first call, which may take longer
than a thousand runs. So one that has been compiled for the way that is not chosen, such
as that of a step at which summaries are due, is run there until it has taken as long as
that: only then is it compiled for the other.
"""

import statistics
import weakref

BLOCK_RUNS = 7  # as many in a row are run the same way
WAKING_RUNS = 2  # the first of them count for nothing
WARM_UP_RUNS = 5  # a way's first block makes its executor and fills its caches
TIMED_RUNS = 15
MOST_TIMED_RUNS = 80
ENOUGH_SECS = 0.05  # of timed runs, where that is less than the most
LONG_RUN_SECS = 0.02
LONG_RUNS = BLOCK_RUNS - WAKING_RUNS  # as many tell, as they vary little
# What the caller's may take of the pool's, to be chosen: it loses more in a wide graph,
# and a pipeline that is still getting faster flatters it, whose block comes last.
LONG_RATIO = 0.9
# Of the pool's; on one thread of a machine with many, such a run might take minutes.
VERY_LONG_RUN_SECS = 0.5


class ThreadChoice:
    """Times two ways to run steps in turn, then settles on the faster one.

    Attributes:
        is_caller: The decision; None as long as there is none.
    """

    def __init__(self, clock):
        self.is_caller = None
        self._clock = clock
        self._timed: dict[bool, list[tuple]] = {True: [], False: []}  # (secs, steps)
        # A request on one way to the seconds that its first call took, less those that
        # it has been run since in place of the chosen way; as long as it has a plan.
        self._compiled: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._runs = 0

    def run(self, on_pool, on_caller, *args, steps=1):
        """Run `steps` steps, one of the two ways, and give what it returns."""
        if self.is_caller is not None:
            return self.run_untimed(on_pool, on_caller, *args)
        block, place = divmod(self._runs, BLOCK_RUNS)
        caller = block % 2 == 1 and not self._is_very_long()
        run = on_caller if caller else on_pool
        start = self._clock()
        values = run(*args)
        secs = self._clock() - start
        if run not in self._compiled:  # its first call tells nothing of the next
            self._compiled[run] = secs
        elif place >= WAKING_RUNS:
            self._timed[caller].append((secs, steps))
            self._decide()
        self._runs += 1
        return values

    def run_untimed(self, on_pool, on_caller, *args):
        """Do the same for what tells nothing about the time that a step takes."""
        run, other = (on_caller, on_pool) if self.is_caller else (on_pool, on_caller)
        if run in self._compiled:
            return run(*args)
        left_secs = self._compiled.get(other, 0.0)
        start = self._clock()
        if left_secs > 0:
            values = other(*args)
            self._compiled[other] = left_secs - (self._clock() - start)
        else:
            values = run(*args)
            self._compiled[run] = self._clock() - start
        return values

    def _is_very_long(self):
        latest = self._timed[False][-LONG_RUNS:]
        return bool(latest) and _median_secs(latest) > VERY_LONG_RUN_SECS

    def _decide(self):
        pool, caller = (self._timed[way][WARM_UP_RUNS:] for way in (False, True))
        if len(pool) >= TIMED_RUNS and self._is_very_long():
            self.is_caller = False
        elif _is_enough(caller) and _is_enough(pool):
            part = LONG_RATIO if _median_secs(caller) > LONG_RUN_SECS else 1
            most_secs = part * _median_step_secs(pool)
            self.is_caller = bool(_median_step_secs(caller) < most_secs)


def _is_enough(timed):
    """Whether runs of one way, less its warm-up, tell how long the next will take."""
    if len(timed) < LONG_RUNS:
        return False
    secs = _median_secs(timed)
    if secs > LONG_RUN_SECS:
        return True
    if len(timed) < TIMED_RUNS:
        return False
    return len(timed) * secs >= ENOUGH_SECS or len(timed) >= MOST_TIMED_RUNS


def _median_secs(timed):
    return statistics.median(secs for secs, _ in timed)


def _median_step_secs(timed):
    return statistics.median(secs / steps for secs, steps in timed)
