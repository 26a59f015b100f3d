"""Ray's error messages, shortened to one readable line."""

import re
import textwrap

from ray.exceptions import RayActorError, RayTaskError

_MAX_CHARACTERS = 300
# Ray colours the first lines of a task's error.
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Lines that describe an actor, and the id of a node.
_IDS = re.compile(r"\t(class_name|actor_id|pid|name|namespace|ip): .*| Node Id: \w+")
_OUR_CLASS = re.compile(r"^estimator_runtime\.errors\.\w+: ")


def brief(error: BaseException) -> str:
    """Return the message of an error that Ray has raised, on one line.

    For an error in code that Ray ran, this is the last line, which names the error. For
    an actor that is gone, this is the reason, without the ids that Ray uses.
    """
    text = _COLOURS.sub("", str(error)).strip()
    if isinstance(error, RayActorError) and not error.actor_init_failed:
        # The first line says only that the actor has died.
        text = _IDS.sub("", text.partition("\n")[2] or text)
    elif isinstance(error, RayTaskError | RayActorError):
        text = _OUR_CLASS.sub("", text.rpartition("\n")[2])
    text = textwrap.shorten(text, _MAX_CHARACTERS, placeholder=" ...")
    return text or type(error).__name__
