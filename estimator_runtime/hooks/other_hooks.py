"""What the other hooks of a session know of its training."""

import math

import tensorflow as tf

from estimator_runtime.compat import logged_values


class OtherHooks:
    """Asks TensorFlow's own hooks; nothing is fetched for it.

    Attributes:
        loss: That of the last line of a LoggingTensorHook, or None.
    """

    def __init__(self, hooks, on_loss=lambda loss: None):
        """Know the hooks.

        Args:
            hooks: All of them, or those that may know something.
            on_loss: Called with each loss that is logged.
        """
        self._hooks = hooks
        self._on_loss = on_loss
        self.loss = None

    def listen(self):
        """Listen to what is logged from now on."""
        for hook in self._hooks:
            logged_values.tell(hook, self._note)

    @property
    def last_step(self):
        """Global step at which the training ends, or None if nobody knows (yet)."""
        known = [
            # One of the program's own may have none, and any kind of number.
            getattr(hook, "_last_step", None)
            for hook in self._hooks
            if isinstance(hook, tf.compat.v1.train.StopAtStepHook)
        ]
        last = min((each for each in known if each is not None), default=math.inf)
        return math.ceil(last) if last < math.inf else None

    def _note(self, values):
        loss = values.get("loss")
        if loss is not None and getattr(loss, "ndim", 0) == 0:
            self.loss = float(loss)
            self._on_loss(self.loss)
