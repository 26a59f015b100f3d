"""Denormals on the calling thread, as on TensorFlow's own: flushed to zero.

The threads of TensorFlow's pools set the processor to flush denormals (tsl's
`ScopedFlushDenormal`); the thread that calls `Session.run` does not. Kernels run on
that thread would give other bits than on a pool's, wherever an optimizer's slot or a
gradient fades out. So the thread is put into the same mode for the length of a step.
"""

import ctypes
import platform
import sys

# Where the C library keeps the control word in its fenv_t, as an index of 32-bit
# words, and the bits that flush: x86-64 FTZ and DAZ in MXCSR, Arm FZ in FPCR.
_CONTROL_WORD = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}
_Environment = ctypes.c_uint32 * 16  # more words than any of them has


class DenormalFlush:
    """Runs functions on the calling thread with denormals flushed to zero.

    Args:
        libm: The C library's functions for the floating-point environment.
        index: Where the control word is in it.
        bits: Those of the control word that flush.
    """

    def __init__(self, libm, index, bits):
        self._get_mode = libm.fegetenv
        self._set_mode = libm.fesetenv
        self._get_mode.argtypes = self._set_mode.argtypes = [ctypes.c_void_p]
        self._index = index
        self._bits = bits

    @classmethod
    def of_this_machine(cls):
        """Give the one for this machine, or None where it cannot be done."""
        place = _CONTROL_WORD.get(platform.machine())
        if place is None or not sys.platform.startswith("linux"):
            return None
        libm = ctypes.CDLL(None)  # Python's own: no search, which starts a process
        return cls(libm, *place) if hasattr(libm, "fesetenv") else None

    def wrap(self, function):
        """Give `function` with denormals flushed while it runs.

        Afterwards the thread that called it is in the mode in which it was before,
        whichever thread that is.
        """
        get_mode, set_mode, index = self._get_mode, self._set_mode, self._index
        address = ctypes.addressof
        usual = _Environment()
        get_mode(address(usual))
        flushing = self._flushing(usual)

        def flushed(*args):
            before = _Environment()
            get_mode(address(before))
            mode = flushing
            if before[index] != usual[index]:  # another thread, or the program set it
                mode = self._flushing(before)
            set_mode(address(mode))
            try:
                return function(*args)
            finally:
                set_mode(address(before))

        return flushed

    def _flushing(self, environment):
        flushing = _Environment(*environment)
        flushing[self._index] |= self._bits
        return flushing
