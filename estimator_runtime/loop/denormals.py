"""Denormals on the thread that calls `Session.run`.

The threads of TensorFlow's pools set the processor to flush denormals (tsl's
`ScopedFlushDenormal`); the thread that calls `Session.run` does not. On that thread,
kernels would compute other bits wherever an optimizer's slot or a gradient fades out.
So it is put into the same mode for the length of a step.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable
from typing import Any

# The index of the control word in the C library's fenv_t, in 32-bit words, and the bits
# that flush denormals: FTZ and DAZ in MXCSR on x86-64, FZ in FPCR on Arm.
_CONTROL_WORD = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}
_Environment = ctypes.c_uint32 * 16  # at least as large as any fenv_t


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
