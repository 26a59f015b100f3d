"""The choice of the thread that runs a step: the caller's, or one of TensorFlow's pool.

Passing a step to the pool and waiting for it costs more than the kernels of a small
graph. A wide graph needs the pool. The graph does not show which case it is, so both
ways are timed over the first steps. Each way is timed several times in a row: the
threads of a pool that has just worked are awake and take the next step at once.

The results are bit-identical. The threads of TensorFlow's pools set the processor to
flush denormals (tsl's `ScopedFlushDenormal`); the thread that calls `Session.run` does
not. On that thread, kernels would compute other bits wherever an optimizer's slot or a
gradient fades out. So it is put into the same mode for the length of a step.

Short steps are timed more often. The cost of passing a step to the pool depends on the
processors on which the threads happen to run, and stays the same for tens of steps.
With 15 timed steps each way, one training in three chose the slower way. In long runs,
such as runs of a hundred steps, that cost is lost in the noise. But small kernels that
the pool passes from thread to thread may take a third longer than on one thread, so
long runs are timed too.

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
from collections.abc import Callable, Sequence
from typing import Any

BLOCK_RUNS = 7  # consecutive runs on the same way
WAKING_RUNS = 2  # runs at the start of a block that do not count
WARM_UP_RUNS = 5  # a way's first block creates its executor and fills its caches
TIMED_RUNS = 15
MOST_TIMED_RUNS = 80
ENOUGH_SECS = 0.05  # total of timed runs that ends timing before MOST_TIMED_RUNS
LONG_RUN_SECS = 0.02
LONG_RUNS = BLOCK_RUNS - WAKING_RUNS  # so few are enough, because they vary little
# For long runs, the caller's thread is chosen only if it takes less than this part of
# the pool's time. A wrong choice costs more there in a wide graph. And the caller's
# block comes second, so it benefits from an input pipeline that is still speeding up.
LONG_RATIO = 0.9
# Runs of the pool longer than this are not tried on the caller's thread: on one thread
# of a machine with many, such a run might take minutes.
VERY_LONG_RUN_SECS = 0.5
# The index of the control word in the C library's fenv_t, in 32-bit words, and the bits
# that flush denormals: FTZ and DAZ in MXCSR on x86-64, FZ in FPCR on Arm.
_CONTROL_WORD = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}
_Environment = ctypes.c_uint32 * 16  # at least as large as any fenv_t


class ThreadChoice:
    """Times two ways to run steps in turn, then chooses the faster one.

    Args:
        clock: Returns the time in seconds.

    Attributes:
        is_caller: Whether the calling thread is chosen; None until the choice is made.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.is_caller: bool | None = None
        self._clock = clock
        # Whether on the calling thread, to the (seconds, steps) of its timed runs.
        self._timed: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
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
        latest = self._timed[False][-LONG_RUNS:]
        return bool(latest) and _median_secs(latest) > VERY_LONG_RUN_SECS

    def _decide(self) -> None:
        """Choose a way, if enough runs of both have been timed."""
        pool, caller = (self._timed[way][WARM_UP_RUNS:] for way in (False, True))
        if len(pool) >= TIMED_RUNS and self._is_very_long():
            self.is_caller = False
        elif _is_enough(caller) and _is_enough(pool):
            part = LONG_RATIO if _median_secs(caller) > LONG_RUN_SECS else 1
            most_secs = part * _median_step_secs(pool)
            self.is_caller = bool(_median_step_secs(caller) < most_secs)


def _is_enough(timed: Sequence[tuple[float, int]]) -> bool:
    """Return whether the timed runs of one way predict how long the next will take."""
    if len(timed) < LONG_RUNS:
        return False
    secs = _median_secs(timed)
    if secs > LONG_RUN_SECS:
        return True
    if len(timed) < TIMED_RUNS:
        return False
    return len(timed) * secs >= ENOUGH_SECS or len(timed) >= MOST_TIMED_RUNS


def _median_secs(timed: Sequence[tuple[float, int]]) -> float:
    """Return the median seconds of a run."""
    return statistics.median(secs for secs, _ in timed)


def _median_step_secs(timed: Sequence[tuple[float, int]]) -> float:
    """Return the median seconds of a step."""
    return statistics.median(secs / steps for secs, steps in timed)


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
