"""What a stream can show: programs put all kinds in the place of standard error."""


def is_terminal(stream):
    """Tell whether a stream is a terminal.

    It is none where nobody can tell: the stream is None, as `sys.stderr` of a process
    that was started without, or closed, or a program's own that has only `write`.
    """
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False
