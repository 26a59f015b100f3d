"""A network of a job's own: a loopback that only its tasks can reach.

TensorFlow's servers listen on every interface without authentication. In a network
namespace of its own a job has no other interface, and nobody else has its loopback;
neither can its tasks reach anything outside, such as a remote file system.
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


def enter_private_network():
    """Move this process, and the children it will have, to a network of its own.

    It must have only one thread. Users and groups stay what they are.

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


def _enter():
    user, group = os.geteuid(), os.getegid()
    try:
        _unshare(_CLONE_NEWNET)  # allowed to root, who then keeps all rights
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


def _unshare(flags):
    library = ctypes.CDLL(None, use_errno=True)
    if library.unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _write(name, text):
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)
