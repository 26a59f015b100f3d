"""Opens regular files only, in folders that others can write to, such as a model_dir.

A named pipe in place of a file would make its reader wait for ever, and a device may
never end. A symbolic link would lead what is written to a place of somebody else's
choice.
"""

import errno
import os
import stat


class NotRegularError(OSError):
    """Something else is in the place of a regular file or folder."""


def opener(path: str, flags: int) -> int:
    """Open a regular file without waiting; give this to `open` as its `opener`.

    A symbolic link is followed only to read.

    Raises:
        NotRegularError: If the path is something else.
        OSError: If it cannot be opened.
    """
    is_written = flags & (os.O_WRONLY | os.O_RDWR)
    if is_written:
        flags |= os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if is_written and error.errno == errno.ELOOP:
            raise _link(path) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegularError(errno.EINVAL, "it is not a regular file", path)
    return descriptor


def make_folder(path: str) -> None:
    """Create a folder to write to, if there is none.

    Raises:
        NotRegularError: If the path is a symbolic link.
        OSError: If the folder cannot be created.
    """
    if os.path.islink(path):
        raise _link(path)
    os.makedirs(path, exist_ok=True)


def _link(path: str) -> NotRegularError:
    return NotRegularError(errno.ELOOP, "it is a symbolic link", path)
