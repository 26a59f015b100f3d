"""Ray's error messages, shortened to one readable line."""

import re

from ray.exceptions import RayActorError, RayTaskError

_MAX_CHARACTERS = 300
_MAX_OF_ACTOR = 180  # the rest is general advice
_GAP = " ... "
# Ray colours the first lines of a task's error.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Lines that describe an actor.
_OF_ACTOR = re.compile(r"\t(class_name|actor_id|pid|name|namespace|ip): ")
_NODE_ID = re.compile(r" Node Id: \w+")


def brief(error: BaseException) -> str:
    """Return the message of an error that Ray has raised, on one line.

    For an error in code that Ray ran, this is the last line, which names the error. For
    an actor that is gone, this is the reason, without the ids that Ray uses.
    """
    text = _COLOURS.sub("", str(error))
    is_of_actor = isinstance(error, RayActorError) and not error.actor_init_failed
    is_of_task = isinstance(error, RayTaskError | RayActorError) and not is_of_actor
    lines = text.splitlines()
    if is_of_actor:
        # The first line says only that the actor has died.
        lines = [line for line in lines[1:] if not _OF_ACTOR.match(line)] or lines
        lines = [_NODE_ID.sub("", line) for line in lines]
    lines = [line.strip() for line in lines if line.strip()]
    if not lines:
        return type(error).__name__
    if is_of_task:
        return _shortened(lines[-1], _MAX_CHARACTERS, _MAX_CHARACTERS // 2)
    most = _MAX_OF_ACTOR if is_of_actor else _MAX_CHARACTERS
    return _shortened(" ".join(lines), most, at_end=0)


def _shortened(text: str, most: int, at_end: int) -> str:
    """Return a text of at most `most` characters, `at_end` of them from the end."""
    if len(text) <= most:
        return text
    head = text[: most - at_end - len(_GAP)].rstrip()
    return f"{head}{_GAP}{text[len(text) - at_end :].lstrip()}".rstrip()
