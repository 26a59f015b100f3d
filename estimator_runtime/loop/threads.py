"""Which thread runs a step: the caller's, or TensorFlow's pool; told by the clock.

Handing a step to the pool and waiting for it costs more than a small graph's kernels
do. A wide graph wants the pool. Neither can be told from the graph, so both ways are
timed over the first steps. The results are the same to the bit (see `flushing`).
"""

import statistics

WARM_UP_RUNS = 4  # a way's first runs make its executor and fill its caches
TIMED_RUNS = 15
# Above this the hand-over is lost in the noise, and the pool is the safe choice.
LONG_RUN_SECS = 0.02


class ThreadChoice:
    """Times two ways to run steps in turn, then settles on the faster one.

    Attributes:
        is_caller: The decision; None as long as there is none.
    """

    def __init__(self, clock):
        self.is_caller = None
        self._clock = clock
        self._secs_per_step: dict[bool, list[float]] = {True: [], False: []}
        self._compiled: set = set()
        self._next = False

    def run(self, on_pool, on_caller, *args, steps=1):
        """Run `steps` steps, one of the two ways, and give what it returns."""
        if self.is_caller is not None:
            return on_caller(*args) if self.is_caller else on_pool(*args)
        caller = self._next
        run = on_caller if caller else on_pool
        start = self._clock()
        values = run(*args)
        secs = self._clock() - start
        if run in self._compiled:
            self._secs_per_step[caller].append(secs / steps)
            self._decide(secs)
        self._compiled.add(run)  # by its first call, which tells nothing of the next
        self._next = not caller
        return values

    def _decide(self, secs):
        pool, caller = self._secs_per_step[False], self._secs_per_step[True]
        if len(caller) > WARM_UP_RUNS and secs > LONG_RUN_SECS:
            self.is_caller = False
        elif min(len(caller), len(pool)) == WARM_UP_RUNS + TIMED_RUNS:
            self.is_caller = statistics.median(
                caller[WARM_UP_RUNS:]
            ) < statistics.median(pool[WARM_UP_RUNS:])
