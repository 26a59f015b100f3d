"""The choice of the thread that runs a step: the caller's, or one of TensorFlow's pool.

Passing a step to the pool and waiting for it costs more than the kernels of a small
graph. A wide graph needs the pool. The graph does not show which case it is, so both
ways are timed over the first steps, and this is the rule:

- The calling thread runs the steps, unless the pool takes less than `SHORT_RATIO` of
  its time.
- Where a run takes long, it is the other way round: the pool runs the steps, unless
  the calling thread takes less than `LONG_RATIO` of its time.

Where both take about as long, the choice is therefore always the same, and not that of
chance. For short runs it is the calling thread, which uses less processor time.

The ways are timed in turns, in blocks of several runs: the threads of a pool that has
just worked are awake and take the next step at once. Each block is compared with the
other way's block beside it, by the best run of each, because other work on the machine
slows down both. The median of these ratios counts.

The results are bit-identical. The threads of TensorFlow's pools set the processor to
flush denormals (tsl's `ScopedFlushDenormal`); the thread that calls `Session.run` does
not. On that thread, kernels would compute other bits wherever an optimizer's slot or a
gradient fades out. So it is put into the same mode for the length of a step.

TensorFlow compiles a request for each way at its first call, which may take longer than
a thousand runs. A short training would never win that back. So no request is compiled
for the caller's thread before runs on the pool have taken as long as that. And a
request may be compiled only for the way that is not chosen, such as the request of a
step at which summaries are due. It goes on being run there until those runs have taken
as long as the first call. Only then is it compiled for the chosen way.
"""

from __future__ import annotations

import ctypes
import math
import platform
import statistics
import sys
import weakref
from collections.abc import Callable
from typing import Any

BLOCK_RUNS = 7  # consecutive runs on the same way
WAKING_RUNS = 2  # runs at the start of a block that do not count
COUNTED_RUNS = BLOCK_RUNS - WAKING_RUNS
# A way's first block does not count: it creates its executor and fills its caches.
WARM_UP_BLOCKS = 1
PAIRS = 7  # blocks of each way that are compared
LONG_RUN_SECS = 0.02
LONG_PAIRS = 1  # so few are enough for long runs, because they vary little
VERY_LONG_BLOCKS = 3
SHORT_RATIO = 0.8
# A wrong choice costs more in a wide graph whose runs are long. And the caller's block
# comes second, so it benefits from an input pipeline that is still speeding up.
LONG_RATIO = 0.9
# Runs of the pool longer than this are not tried on the caller's thread: on one thread
# of a machine with many, such a run might take minutes.
VERY_LONG_RUN_SECS = 0.5
# The index of the control word in the C library's fenv_t, in 32-bit words, and the bits
# that flush denormals: FTZ and DAZ in MXCSR on x86-64, FZ in FPCR on Arm.
_CONTROL_WORD = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}
_Environment = ctypes.c_uint32 * 16  # at least as large as any fenv_t
_Timed = list[tuple[float, int]]  # the seconds and the steps of runs


class ThreadChoice:
    """Times two ways to run steps in turn, then chooses one by the module's rule.

    Args:
        clock: Returns the time in seconds.

    Attributes:
        is_caller: Whether the calling thread is chosen; None until the choice is made.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.is_caller: bool | None = None
        self._clock = clock
        # Whether on the calling thread, to the (seconds, steps) of its timed runs.
        self._timed: dict[bool, _Timed] = {True: [], False: []}
        # A callable of one way, to the seconds that its first call took. If it has run
        # since in place of the chosen way, the seconds of those runs are subtracted.
        # Entries live as long as the plan that has the callable.
        self._compiled: weakref.WeakKeyDictionary[Callable[..., Any], float]
        self._compiled = weakref.WeakKeyDictionary()
        self._runs = 0
        # What runs on the pool have taken, less what was compiled for it.
        self._pool_secs = 0.0

    def run(
        self,
        on_pool: Callable[..., Any],
        on_caller: Callable[..., Any],
        *args: Any,
        steps: int = 1,
    ) -> Any:
        """Run steps in one of the two ways, and time the run until a way is chosen.

        Args:
            on_pool: Runs the steps on TensorFlow's threads.
            on_caller: Runs them on the calling thread.
            *args: Arguments for either.
            steps: The number of steps in the run.

        Returns:
            What the function returns that has been called.
        """
        if self.is_caller is not None:
            return self.run_untimed(on_pool, on_caller, *args)
        block, place = divmod(self._runs, BLOCK_RUNS)
        caller = block % 2 == 1 and not self._is_very_long()
        caller = caller and self._may_compile(on_pool, on_caller)
        run = on_caller if caller else on_pool
        start = self._clock()
        values = run(*args)
        secs = self._clock() - start
        if run not in self._compiled:  # the first call compiles, so it does not count
            self._compiled[run] = secs
            if caller:
                self._pool_secs -= self._compiled[on_pool]
                if not self._timed[True]:
                    # The pool has run all steps so far. Only its latest block is beside
                    # the caller's first one, which begins here.
                    del self._timed[False][:-COUNTED_RUNS]
                    self._runs -= place
        else:
            if not caller:
                self._pool_secs += secs
            if place >= WAKING_RUNS:
                self._timed[caller].append((secs, steps))
                self._decide()
        self._runs += 1
        return values

    def _may_compile(
        self, on_pool: Callable[..., Any], on_caller: Callable[..., Any]
    ) -> bool:
        """Return whether a request is compiled for the caller's thread, or may be.

        It takes about as long as it took for the pool.
        """
        if on_caller in self._compiled:
            return True
        return self._pool_secs >= self._compiled.get(on_pool, math.inf)

    def run_untimed(
        self,
        on_pool: Callable[..., Any],
        on_caller: Callable[..., Any],
        *args: Any,
    ) -> Any:
        """Run steps as `run` does, without counting the run for the choice."""
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

    def _is_very_long(self) -> bool:
        """Return whether the pool's runs are too long to try the calling thread."""
        latest = self._timed[False][-COUNTED_RUNS:]
        return bool(latest) and _median_secs(latest) > VERY_LONG_RUN_SECS

    def _decide(self) -> None:
        """Choose a way, if enough runs of both have been timed."""
        pool, caller = (_blocks(self._timed[way]) for way in (False, True))
        if len(pool) >= VERY_LONG_BLOCKS and self._is_very_long():
            self.is_caller = False
            return
        pairs = list(zip(pool, caller, strict=False))
        if len(pairs) < LONG_PAIRS:
            return
        is_long = all(_median_secs(block) > LONG_RUN_SECS for block in pairs[-1])
        if is_long or len(pairs) >= PAIRS:
            # Of the caller's time to the pool's.
            ratio = statistics.median(
                _best_step_secs(c) / max(_best_step_secs(p), 1e-9) for p, c in pairs
            )
            most = LONG_RATIO if is_long else 1 / SHORT_RATIO
            self.is_caller = ratio < most


def _blocks(timed: _Timed) -> list[_Timed]:
    """Return the complete blocks of one way, without those that warm it up."""
    starts = range(0, len(timed) - COUNTED_RUNS + 1, COUNTED_RUNS)
    return [timed[i : i + COUNTED_RUNS] for i in starts][WARM_UP_BLOCKS:]


def _median_secs(timed: _Timed) -> float:
    """Return the median seconds of a run."""
    return statistics.median(secs for secs, _ in timed)


def _best_step_secs(timed: _Timed) -> float:
    """Return the fewest seconds of a step, which have least of other work in them."""
    return min(secs / steps for secs, steps in timed)


class DenormalFlush:
    """Runs functions on the calling thread with denormals flushed to zero.

    Args:
        libm: The C library, for its functions `fegetenv` and `fesetenv`.
        index: The index of the control word in the floating-point environment.
        bits: The bits of the control word that flush denormals.
    """

    def __init__(self, libm: ctypes.CDLL, index: int, bits: int) -> None:
        self._get_mode = libm.fegetenv
        self._set_mode = libm.fesetenv
        self._get_mode.argtypes = self._set_mode.argtypes = [ctypes.c_void_p]
        self._index = index
        self._bits = bits

    @classmethod
    def of_this_machine(cls) -> DenormalFlush | None:
        """Return an instance for this machine, or None if it is not supported."""
        place = _CONTROL_WORD.get(platform.machine())
        if place is None or not sys.platform.startswith("linux"):
            return None
        # The libraries of this process: a search by name would start a process.
        libm = ctypes.CDLL(None)
        return cls(libm, *place) if hasattr(libm, "fesetenv") else None

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` with denormals flushed while it runs.

        Any thread may call the result. After the call, the thread is in the mode in
        which it was before.
        """
        get_mode, set_mode, index = self._get_mode, self._set_mode, self._index
        address = ctypes.addressof
        usual = _Environment()
        get_mode(address(usual))
        flushing = self._flushing(usual)

        def flushed(*args: Any) -> Any:
            before = _Environment()
            get_mode(address(before))
            mode = flushing
            # Another thread may have another mode, or the program may have set one.
            if before[index] != usual[index]:
                mode = self._flushing(before)
            set_mode(address(mode))
            try:
                return function(*args)
            finally:
                set_mode(address(before))

        return flushed

    def _flushing(
        self, environment: ctypes.Array[ctypes.c_uint32]
    ) -> ctypes.Array[ctypes.c_uint32]:
        """Return a copy of a floating-point environment that flushes denormals."""
        flushing = _Environment(*environment)
        flushing[self._index] |= self._bits
        return flushing
