"""Close sessions within a bounded time, and log what a slow close waits for.

When a session ends, TensorFlow notifies every task of the cluster and waits for the
answers. It waits forever if one of the tasks is gone for good. It also waits for the
threads of the input pipeline. The thread that tunes a tf.data pipeline often misses its
cancellation and keeps sleeping, for up to a minute. A task that was told to stop has
saved its checkpoint by then, and does not have a minute left.

If the program cannot notice, a close that takes longer than usual continues in the
background, so that the program can go on: evaluate, export, end, or show the next
prompt of a notebook. Python's exit waits for such a close. If the close returned while
Python finalizes the interpreter, Python would end its thread inside TensorFlow, and the
process would abort. `estimator-runtime run` skips Python's exit then; see
`exit.finalize`.

The thread misses its cancellation because TensorFlow's `CancellationManager` calls the
callbacks, one of which wakes the thread, before it sets the flag that `IsCancelled`
returns. If the thread runs in between, it finds that it is not cancelled and sleeps for
the rest of its period. The period is 10 ms at first and doubles each time, up to 60 s.
A second cancellation does nothing, and nothing else wakes the thread.
"""

import atexit
import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from estimator_runtime import threads

_logger = logging.getLogger(__name__)

# If all tasks are alive, a close takes a few milliseconds.
_TIMEOUT_SECS = 5.0
_STOP_TIMEOUT_SECS = 1.0
_BACKGROUND_TIMEOUT_SECS = 0.1
_LOG_AFTER_SECS = 3.0
# Slightly more than the longest sleep of the thread that tunes the input pipeline.
_EXIT_TIMEOUT_SECS = 70.0

_WAITS = (
    "closing the session takes long: most likely it waits for TensorFlow's thread that "
    "tunes the input pipeline, up to a minute; to avoid that, give the dataset a "
    "tf.data.Options with autotune.enabled = False, by dataset.with_options(options)"
)

# Variables stay in memory until a close in the background has finished. This limit is
# 256 MiB for eight-byte values.
_MAX_BACKGROUND_VALUES = 32 * 2**20

_MAX_LEFT = 4  # closes in the background at the same time
_left: list[threading.Thread] = []  # closes still running in the background


def closable(session: Any, is_stop: bool = False, is_lost: bool = False) -> Any:
    """Return the object to close in place of a session, in a bounded time if possible.

    The result is the session itself if its close needs no bound, or cannot have one: if
    the graph has no tf.data iterator, if there is a device other than a CPU, or while
    four earlier sessions are still being closed. In a cluster, the close of a session
    that was lost or told to stop always has a bound.

    Args:
        session: A `tf.compat.v1.Session`.
        is_stop: Whether the program closes it because it was told to stop.
        is_lost: Whether the program closes it because a task was lost.
    """
    is_local = not getattr(session, "sess_str", "")
    if is_lost and not is_local:
        return BoundedClose(session, _TIMEOUT_SECS, warns=True)
    if is_stop and not is_local:
        return BoundedClose(session, _STOP_TIMEOUT_SECS)
    is_full = sum(thread.is_alive() for thread in _left) >= _MAX_LEFT
    if is_full or not _may_wait(session):
        return session
    return BoundedClose(
        session,
        _BACKGROUND_TIMEOUT_SECS,
        may_leave=lambda: not is_end_observable(session.graph, is_local),
    )


def _may_wait(session: Any) -> bool:
    """Return whether a close may wait for a tuner, and for nothing else."""
    from estimator_runtime.tf_internals import op_kinds  # imports TensorFlow

    try:
        operations = session.graph.get_operations()
        # A graph without an iterator has no such thread.
        if not any(op_kinds.of(op.type).is_iterator for op in operations):
            return False
        return all(each.device_type == "CPU" for each in session.list_devices())
    except Exception:  # noqa: BLE001 - closing it will raise the real error
        return False


def is_end_observable(graph: Any, frees_variables: bool = True) -> bool:
    """Return whether a program could notice that a session of a graph closes late.

    It could if the graph calls the program's Python functions, if a dataset or a
    summary writer completes a file when it ends, or if the end frees variables that use
    a lot of memory.

    Args:
        graph: A `tf.Graph`.
        frees_variables: Whether the variables end with the session. In a cluster they
            do not: they end with the server that holds them.
    """
    from estimator_runtime.tf_internals import op_kinds  # imports TensorFlow

    try:
        graph_def = graph.as_graph_def()
    except ValueError:  # larger than 2 GB
        return True
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        nodes.extend(function.node_def)
    # Python functions, and files. Collective ops of a session that is still open may
    # meet those of the next one.
    if any(op_kinds.of(node.op).has_observable_end for node in nodes):
        return True
    if not frees_variables:
        return False
    variables = [node for node in nodes if op_kinds.of(node.op).is_variable]
    return sum(_num_values(node) for node in variables) > _MAX_BACKGROUND_VALUES


def _num_values(node: Any) -> float:
    """Return the number of values in a variable; inf if unknown."""
    shape = node.attr["shape"].shape
    if shape.unknown_rank or any(each.size < 0 for each in shape.dim):
        return math.inf
    return math.prod(each.size for each in shape.dim)


@contextlib.contextmanager
def slow_close_logged(after_secs: float = _LOG_AFTER_SECS) -> Iterator[None]:
    """Log what a session waits for if its close in this context takes too long."""
    timer = threading.Timer(after_secs, _logger.warning, args=(_WAITS,))
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no more threads can be started
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if timer.ident is not None:  # leave no extra thread behind, not even briefly
            timer.join(_STOP_TIMEOUT_SECS)


class BoundedClose:
    """A session whose `close` returns within a bounded time.

    A daemon thread then goes on to close it.

    Args:
        session: A `tf.compat.v1.Session`.
        timeout_secs: Time after which `close` returns.
        may_leave: Returns whether it may return then; asked after that time.
        warns: Whether it logs a warning then, and Python's exit does not wait for the
            thread.
    """

    def __init__(
        self,
        session: Any,
        timeout_secs: float,
        may_leave: Callable[[], bool] = lambda: True,
        warns: bool = False,
    ) -> None:
        self._session, self._timeout_secs = session, timeout_secs
        self._may_leave, self._warns = may_leave, warns
        self._error: Exception | None = None

    def close(self) -> None:
        """Close the session, in the background if that takes too long.

        Raises:
            tf.errors.OpError: If the session's own `close` raises it in time.
        """
        try:
            thread = threads.start("close", self._close)
        except RuntimeError:  # no more threads can be started
            self._session.close()
            return
        if not self._warns:  # before the wait, which Ctrl-C may interrupt
            _leave(thread)
        thread.join(self._timeout_secs)
        if thread.is_alive() and not self._may_leave():
            thread.join()
        if self._error is not None:
            raise self._error
        if thread.is_alive() and self._warns:
            _logger.warning(
                "a task of the cluster does not answer that the session is closed; "
                "going on without its answer after %g s",
                self._timeout_secs,
            )

    def _close(self) -> None:
        try:
            self._session.close()
        except Exception as error:  # noqa: BLE001 - `close` raises it
            self._error = error


def are_left(wait_secs: float = 0.0) -> bool:
    """Return whether a session is still being closed in the background.

    Args:
        wait_secs: How long to wait for that at most, in seconds.
    """
    until = time.monotonic() + wait_secs
    for thread in _left:
        thread.join(max(0.0, until - time.monotonic()))
    return any(thread.is_alive() for thread in _left)


def forget_left() -> None:
    """Make Python's exit handlers not wait for closes in the background."""
    _left.clear()


def _leave(thread: threading.Thread) -> None:
    """Register a close in the background, so that Python's exit waits for it."""
    _left[:] = [each for each in _left if each.is_alive()]
    _left.append(thread)
    # Register it again each time: Python runs the newest handler first, and everything
    # the close may need still exists then.
    atexit.unregister(_wait_for_left)
    atexit.register(_wait_for_left)


def _wait_for_left() -> None:
    """Wait for closes in the background before Python finalizes the interpreter."""
    if are_left(_STOP_TIMEOUT_SECS):
        _logger.warning(_WAITS)
        are_left(_EXIT_TIMEOUT_SECS)
