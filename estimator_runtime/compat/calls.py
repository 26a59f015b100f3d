"""What the arguments of a call are, for what is called in place of a function."""

import inspect


def binder(function):
    """Give what binds a call's arguments to the names that a function has for them.

    Its own TypeError refuses wrong ones: that names the function.
    """
    signature = inspect.signature(function)

    def bind(*args, **kwargs):
        try:
            return signature.bind(*args, **kwargs)
        except TypeError:
            function(*args, **kwargs)
            raise

    return bind
