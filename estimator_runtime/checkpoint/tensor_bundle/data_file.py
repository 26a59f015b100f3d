"""Writes the data of a checkpoint past the cache of the file system.

The cache takes a copy of all that is written, in memory that has to be found first:
that costs processor time, which training needs, and pushes out what others have cached.
"""

import errno
import fcntl
import mmap
import os

import numpy as np
from crc32c import crc32c

_BUFFER_BYTES = 4 << 20  # a copy of so many is still in the processor's cache
_BLOCK_BYTES = 4096  # what a disk takes; sizes and addresses are multiples of it
_DIRECT = getattr(os, "O_DIRECT", 0)
# What file systems say that do not know this way: most EINVAL, some network and user
# space ones another of these, and some only when they are written to.
_UNKNOWN = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOTTY)


class DataFile:
    """A new file to which arrays are written, one behind the other.

    Where the file system cannot do without its cache, it is used. What was written is
    complete when `close` has returned; it need not be on the disk then.

    Args:
        path: The file; one that is there is replaced.

    Raises:
        OSError: If it cannot be opened.
    """

    def __init__(self, path):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            self._file = os.open(path, flags | _DIRECT, 0o666)
            self._is_direct = bool(_DIRECT)
        except OSError:
            # Whatever it says: if it is not this way that it means, it says it again.
            self._file = os.open(path, flags, 0o666)
            self._is_direct = False
        self._is_open = True
        self._memory = mmap.mmap(-1, _BUFFER_BYTES)  # begins at a page
        self._buffer = np.frombuffer(self._memory, np.uint8)
        self._filled = 0
        self._flushed = 0

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    @property
    def bytes(self):
        """How many have been written."""
        return self._flushed + self._filled

    def write(self, array):
        """Write the bytes of an array; give their crc32c.

        Raises:
            OSError: If they cannot be written.
        """
        # A view, unless the array has gaps. A memoryview would not know each type.
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        checksum = position = 0
        while position < len(data):
            size = min(len(data) - position, _BUFFER_BYTES - self._filled)
            copy = self._buffer[self._filled : self._filled + size]
            copy[:] = data[position : position + size]
            checksum = crc32c(copy, checksum)
            position += size
            self._filled += size
            if self._filled == _BUFFER_BYTES:
                self._flush(_BUFFER_BYTES)
        return checksum

    def close(self):
        """Write what is left; a second call does nothing.

        Raises:
            OSError: If it cannot be written.
        """
        if not self._is_open:
            return
        self._is_open = False
        try:
            if self._filled:
                size = self.bytes
                self._flush(-(-self._filled // _BLOCK_BYTES) * _BLOCK_BYTES)
                os.ftruncate(self._file, size)
        finally:
            os.close(self._file)

    def _flush(self, count):
        """Write the first bytes of the buffer, a multiple of blocks."""
        left = memoryview(self._memory)[:count]
        while left:
            try:
                written = os.write(self._file, left)
            except OSError as error:
                if not self._is_direct or error.errno not in _UNKNOWN:
                    raise
                # Its blocks are larger, or it only seemed to know this way.
                flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
                fcntl.fcntl(self._file, fcntl.F_SETFL, flags & ~_DIRECT)
                self._is_direct = False
                continue
            left = left[written:]
        self._flushed += count
        self._filled = 0
