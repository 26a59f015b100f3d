"""The `checkpoint` file, which names a folder's newest checkpoint and its others."""

import dataclasses
import os
import re

from estimator_runtime.checkpoint import durable

STATE_FILE = "checkpoint"
_FIELD = re.compile(r'\s*(\w+)\s*:\s*(?:"((?:[^"\\\n]|\\.)*)"|([-+.\w]+))\s*$')
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9a-fA-F]{1,2}|.)")
_NAMED_ESCAPES = {"n": 10, "t": 9, "r": 13}


class StateError(ValueError):
    """A state file cannot be read; the message says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """What the state file says.

    Attributes:
        latest: Path of the newest checkpoint, without suffix.
        paths: Paths of all that are kept for a while, oldest first.
        timestamps: When each of `paths` was saved, in seconds since 1970, or ().
        last_preserved: When the last one was saved that is kept for good, or None.
    """

    latest: str
    paths: tuple[str, ...]
    timestamps: tuple[float, ...] = ()
    last_preserved: float | None = None


def read_state(folder):
    """Read the state file of a folder.

    Returns:
        `State` with absolute paths if `folder` is one, or None if there is no file.

    Raises:
        StateError: If its content is not what a Saver writes.
        OSError: If it cannot be read.
    """
    try:
        with open(os.path.join(folder, STATE_FILE), "rb") as file:
            text = file.read().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise StateError("is no text") from error
    fields: dict[str, list[str]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        match = _FIELD.match(line)
        if not match:
            raise StateError(f"has the line {line[:40]!r}")
        name, quoted, bare = match.groups()
        value = _unescaped(quoted) if quoted is not None else bare
        fields.setdefault(name, []).append(value)
    if not fields.get("model_checkpoint_path", [""])[-1]:
        raise StateError("names no checkpoint")
    latest = os.path.join(folder, fields["model_checkpoint_path"][-1])
    paths = fields.get("all_model_checkpoint_paths", [])
    try:
        times = tuple(map(float, fields.get("all_model_checkpoint_timestamps", [])))
        preserved = [float(t) for t in fields.get("last_preserved_timestamp", [])]
    except ValueError as error:
        raise StateError(f"has a time that is no number ({error})") from error
    return State(
        latest=latest,
        paths=tuple(os.path.join(folder, path) for path in paths) or (latest,),
        timestamps=times if len(times) == len(paths) else (),
        last_preserved=preserved[-1] if preserved else None,
    )


def write_state(folder, state, relative=True):
    """Replace the state file of a folder; durable when it returns.

    Args:
        folder: The folder.
        state: `State`.
        relative: Whether paths inside `folder` are written without it, so that the
            folder can be moved.

    Raises:
        OSError: If it cannot be written; the old one stays.
    """

    def shown(path):
        inside = os.path.normpath(os.path.dirname(path)) == os.path.normpath(folder)
        if relative and inside:
            return _escaped(os.path.basename(path))
        return _escaped(path if relative else os.path.abspath(path))

    lines = [f'model_checkpoint_path: "{shown(state.latest)}"']
    lines += [f'all_model_checkpoint_paths: "{shown(path)}"' for path in state.paths]
    lines += [f"all_model_checkpoint_timestamps: {t!r}" for t in state.timestamps]
    if state.last_preserved is not None:
        lines.append(f"last_preserved_timestamp: {state.last_preserved!r}")
    content = "".join(f"{line}\n" for line in lines).encode()
    durable.replace_file(os.path.join(folder, STATE_FILE), content)


def _escaped(path):
    shown = {34: '\\"', 92: "\\\\"}
    return "".join(
        shown.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")
        for byte in os.fsencode(path)
    )


def _unescaped(text):
    def byte(match):
        code = match.group(1)
        if code[0] in "01234567":
            value = int(code, 8)
        elif code[0] == "x":
            value = int(code[1:], 16)
        else:
            value = _NAMED_ESCAPES.get(code, ord(code))
        return chr(value & 0xFF)

    # Characters stand for bytes here, as the escapes in between do.
    latin = text.encode().decode("latin-1")
    return os.fsdecode(_ESCAPE.sub(byte, latin).encode("latin-1"))
