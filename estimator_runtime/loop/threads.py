"""Which thread runs a step: the caller's, or TensorFlow's pool; told by the clock.

Handing a step to the pool and waiting for it costs more than a small graph's kernels
do. A wide graph wants the pool. Neither can be told from the graph, so both ways are
timed over the first steps, several in a row: the threads of a pool that has just
worked are awake, and take the next step at once. The results are the same to the bit
(see `flushing`).
"""

import statistics

BLOCK_RUNS = 7  # as many in a row are run the same way
WAKING_RUNS = 2  # the first of them count for nothing
WARM_UP_RUNS = 5  # a way's first block makes its executor and fills its caches
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
        self._runs = 0

    def run(self, on_pool, on_caller, *args, steps=1):
        """Run `steps` steps, one of the two ways, and give what it returns."""
        if self.is_caller is not None:
            return on_caller(*args) if self.is_caller else on_pool(*args)
        block, place = divmod(self._runs, BLOCK_RUNS)
        caller = block % 2 == 1
        run = on_caller if caller else on_pool
        start = self._clock()
        values = run(*args)
        secs = self._clock() - start
        if run in self._compiled and place >= WAKING_RUNS:
            self._secs_per_step[caller].append(secs / steps)
            self._decide(secs)
        self._compiled.add(run)  # by its first call, which tells nothing of the next
        self._runs += 1
        return values

    def _decide(self, secs):
        pool, caller = self._secs_per_step[False], self._secs_per_step[True]
        if len(caller) > WARM_UP_RUNS and secs > LONG_RUN_SECS:
            self.is_caller = False
        elif min(len(caller), len(pool)) >= WARM_UP_RUNS + TIMED_RUNS:
            self.is_caller = statistics.median(
                caller[WARM_UP_RUNS:]
            ) < statistics.median(pool[WARM_UP_RUNS:])
