"""The threads of this package.

They are daemons, which never keep a process from ending, and `py-spy` or a stack dump
shows whose they are. Standard library only.
"""

import threading
from collections.abc import Callable
from typing import Any


def start(
    name: str, target: Callable[..., object], *arguments: Any
) -> threading.Thread:
    """Start a daemon thread with the name "estimator_runtime NAME", and return it.

    Raises:
        RuntimeError: If no more threads can be started.
    """
    thread = threading.Thread(
        target=target, args=arguments, name=f"estimator_runtime {name}", daemon=True
    )
    thread.start()
    return thread
