"""What the arguments of a call are, for what is called in place of a function."""

import contextlib
import inspect


def binder(function):
    """Give what binds a call's arguments to the names that a function has for them.

    Its own TypeError refuses wrong ones: that names the function.
    """
    signature = inspect.signature(function)

    def bind(*args, **kwargs):
        with contextlib.suppress(TypeError):
            return signature.bind(*args, **kwargs)
        # The very function whose signature refuses them, so it cannot run.
        return inspect.unwrap(function)(*args, **kwargs)

    return bind
