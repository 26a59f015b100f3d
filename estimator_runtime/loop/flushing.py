"""Denormals on the calling thread, as on TensorFlow's own: flushed to zero.

The threads of TensorFlow's pools set the processor to flush denormals (tsl's
`ScopedFlushDenormal`); the thread that calls `Session.run` does not. Kernels run on
that thread would give other bits than on a pool's, wherever an optimizer's slot or a
gradient fades out. So the thread is put into the same mode for the length of a step.
"""

import ctypes
import ctypes.util
import platform
import sys

# Where the C library keeps the control word in its fenv_t, as an index of 32-bit
# words, and the bits that flush: x86-64 FTZ and DAZ in MXCSR, Arm FZ in FPCR.
_CONTROL_WORD = {"x86_64": (7, 0x8040), "aarch64": (0, 1 << 24)}
_FENV_WORDS = 16  # more than any of them has


class DenormalFlush:
    """Runs functions on this thread with denormals flushed to zero.

    Args:
        set_mode: Sets the floating-point environment at an address.
        flushing: Address of the environment that flushes.
        usual: Address of the environment to go back to.
        memory: Keeps the two alive.
    """

    def __init__(self, set_mode, flushing, usual, memory):
        self._set_mode = set_mode
        self._flushing = flushing
        self._usual = usual
        self._memory = memory

    @classmethod
    def of_this_thread(cls):
        """Give the one for the calling thread's mode, or None where unsupported."""
        place = _CONTROL_WORD.get(platform.machine())
        if place is None or not sys.platform.startswith("linux"):
            return None
        library = ctypes.util.find_library("m")
        if library is None:
            return None
        libm = ctypes.CDLL(library)
        usual = (ctypes.c_uint32 * _FENV_WORDS)()
        if libm.fegetenv(usual) != 0:
            return None
        index, bits = place
        flushing = (ctypes.c_uint32 * _FENV_WORDS)(*usual)
        flushing[index] |= bits
        libm.fesetenv.argtypes = [ctypes.c_void_p]
        return cls(
            libm.fesetenv,
            ctypes.addressof(flushing),
            ctypes.addressof(usual),
            (usual, flushing),
        )

    def wrap(self, function):
        """Give `function` with denormals flushed while it runs."""
        set_mode, flushing, usual = self._set_mode, self._flushing, self._usual

        def flushed(*args):
            set_mode(flushing)
            try:
                return function(*args)
            finally:
                set_mode(usual)

        return flushed
