"""A private network for a job: a loopback interface that only its tasks can reach.

TensorFlow's servers listen on every interface without authentication. In a network
namespace of its own a job has no other interface, and no other process can reach its
loopback. But its tasks cannot reach anything outside either, such as a remote file
system.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct

from estimator_runtime.errors import LaunchError

_CLONE_NEWUSER = 0x10000000
_CLONE_NEWNET = 0x40000000
_SIOCGIFFLAGS, _SIOCSIFFLAGS = 0x8913, 0x8914
_IFF_UP = 1
_IFREQ = "16sh22x"


def enter_private_network() -> None:
    """Move this process and its future children to a network namespace of its own.

    The process must have only one thread. It keeps its user and its group.

    Raises:
        LaunchError: If the kernel does not allow it.
    """
    try:
        _enter()
    except OSError as error:
        raise LaunchError(
            "--private-network: the kernel does not allow a network of one's own here "
            f"({error.strerror or error}); leave it out, and run the job where nobody "
            "else can connect"
        ) from error


def _enter() -> None:
    """Enter a network namespace, and bring its loopback interface up."""
    user, group = os.geteuid(), os.getegid()
    try:
        _unshare(_CLONE_NEWNET)  # root may do this, and then keeps all rights
    except PermissionError:
        _unshare(_CLONE_NEWUSER | _CLONE_NEWNET)
        with contextlib.suppress(FileNotFoundError):
            _write("setgroups", "deny")
        _write("uid_map", f"{user} {user} 1")
        _write("gid_map", f"{group} {group} 1")
    with socket.socket() as any_socket:
        request = struct.pack(_IFREQ, b"lo", 0)
        answer = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request)
        _, flags = struct.unpack(_IFREQ, answer)
        request = struct.pack(_IFREQ, b"lo", flags | _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _unshare(flags: int) -> None:
    """Call unshare(2)."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(name: str, text: str) -> None:
    """Write to a file in the folder of this process in procfs."""
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
