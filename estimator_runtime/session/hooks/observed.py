"""Values that the other hooks of a session already measure or log."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf


class OtherHooks:
    """The last step and the loss, read from TensorFlow's own hooks without a fetch.

    Args:
        hooks: The hooks of the session.
        on_loss: Called with each loss that is logged.

    Attributes:
        loss: The loss that a LoggingTensorHook logged last, or None.
    """

    def __init__(
        self,
        hooks: Sequence[tf.compat.v1.train.SessionRunHook],
        on_loss: Callable[[float], object] = lambda loss: None,
    ) -> None:
        self._hooks = hooks
        self._on_loss = on_loss
        self.loss: float | None = None

    def listen(self) -> None:
        """Start to listen for logged losses."""
        for hook in self._hooks:
            tell(hook, self._note)

    @property
    def last_step(self) -> int | None:
        """Global step at which the training ends, or None if it is not known (yet)."""
        known = [
            # A subclass in the program may have none, or any kind of number.
            getattr(hook, "_last_step", None)
            for hook in self._hooks
            if isinstance(hook, tf.compat.v1.train.StopAtStepHook)
        ]
        last = min((each for each in known if each is not None), default=math.inf)
        return math.ceil(last) if last < math.inf else None

    def _note(self, values: Mapping[str, Any]) -> None:
        loss = values.get("loss")
        if loss is not None and getattr(loss, "ndim", 0) == 0:
            self.loss = float(loss)
            self._on_loss(self.loss)


def tell(
    hook: tf.compat.v1.train.SessionRunHook,
    listener: Callable[[Mapping[str, Any]], object],
) -> None:
    """Call `listener` with the values of each line that a hook logs, by tag.

    This works for TensorFlow's own LoggingTensorHook only, not for a subclass. The hook
    logs the same lines at the same steps.

    Args:
        hook: Any hook of the session.
        listener: Called with the values after they are logged.
    """
    is_stock = type(hook) is tf.compat.v1.train.LoggingTensorHook
    if not is_stock or "_log_tensors" in vars(hook):
        return
    log = hook._log_tensors

    @functools.wraps(log)
    def log_and_tell(tensor_values: Mapping[str, Any]) -> None:
        log(tensor_values)
        listener(tensor_values)

    hook._log_tensors = log_and_tell
