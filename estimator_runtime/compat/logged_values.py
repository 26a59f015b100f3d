"""What TensorFlow's LoggingTensorHook logs, for others to see too."""

import functools

from tensorflow.python.training import basic_session_run_hooks


def tell(hook, listener):
    """Let `listener` have the values of each line that a hook logs, by tag.

    Only a LoggingTensorHook of TensorFlow's own is listened to; it logs as before, at
    the same steps.
    """
    is_stock = type(hook) is basic_session_run_hooks.LoggingTensorHook
    if not is_stock or "_log_tensors" in vars(hook):
        return
    log = hook._log_tensors

    @functools.wraps(log)
    def log_and_tell(tensor_values):
        log(tensor_values)
        listener(tensor_values)

    hook._log_tensors = log_and_tell
