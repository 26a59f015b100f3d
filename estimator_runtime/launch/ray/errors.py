"""What errors of Ray's say, in one line that a person can read."""

import re

from ray.exceptions import RayActorError, RayTaskError

_MAX_CHARACTERS = 300
_MAX_OF_ACTOR = 180  # what follows is general advice
_GAP = " ... "
# Of a task's error, which colours its first lines.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# What an actor was.
_OF_ACTOR = re.compile(r"\t(class_name|actor_id|pid|name|namespace|ip): ")
_NODE_ID = re.compile(r" Node Id: \w+")


def brief(error):
    """Give what an error says that Ray has raised, on one line.

    Of an error of the code that Ray ran it is the last line, which names that; of an
    actor that is gone it is why, without the numbers by which Ray knows it.
    """
    text = _COLOURS.sub("", str(error))
    is_of_actor = isinstance(error, RayActorError) and not error.actor_init_failed
    is_of_task = isinstance(error, RayTaskError | RayActorError) and not is_of_actor
    lines = text.splitlines()
    if is_of_actor:
        # The first says only that it has died.
        lines = [line for line in lines[1:] if not _OF_ACTOR.match(line)] or lines
        lines = [_NODE_ID.sub("", line) for line in lines]
    lines = [line.strip() for line in lines if line.strip()]
    if not lines:
        return type(error).__name__
    if is_of_task:
        return _shortened(lines[-1], _MAX_CHARACTERS, _MAX_CHARACTERS // 2)
    most = _MAX_OF_ACTOR if is_of_actor else _MAX_CHARACTERS
    return _shortened(" ".join(lines), most, at_end=0)


def _shortened(text, most, at_end):
    """Give so many characters of a text at most, and so many of them from its end."""
    if len(text) <= most:
        return text
    head = text[: most - at_end - len(_GAP)].rstrip()
    return f"{head}{_GAP}{text[len(text) - at_end :].lstrip()}".rstrip()
