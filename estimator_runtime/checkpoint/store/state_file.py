"""State file: the file `checkpoint`, which names the checkpoints in a folder."""

import dataclasses
import os

from estimator_runtime.checkpoint.store import durable
from estimator_runtime.checkpoint.tensor_bundle import proto, reading
from estimator_runtime.checkpoint.tensor_bundle.table import TableError
from estimator_runtime.errors import CheckpointError

STATE_FILE = "checkpoint"


class StateError(ValueError):
    """A state file cannot be parsed; the message says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class State:
    """The content of a state file.

    Attributes:
        latest: Path of the newest checkpoint, without suffix.
        paths: Paths of the checkpoints that are not kept for good, oldest first.
        timestamps: When each of `paths` was saved, in seconds since 1970, or ().
        last_preserved: When the last checkpoint that is kept for good was saved, or
            None. As in TensorFlow, 0 is read as None.
    """

    latest: str
    paths: tuple[str, ...]
    timestamps: tuple[float, ...] = ()
    last_preserved: float | None = None


def read_state(folder: str) -> State | None:
    """Return the content of a folder's state file, as TensorFlow reads it.

    If TensorFlow's parser rejects the file, TensorFlow ignores it and starts at step 0.
    So this function uses the same parser.

    Returns:
        The content, or None if there is no file. Its paths are absolute if `folder` is.

    Raises:
        StateError: If TensorFlow cannot parse the file, or it names no usable path.
        OSError: If the file cannot be read.
    """
    try:
        path = os.path.join(folder, STATE_FILE)
        text = reading.content(path).decode()
    except FileNotFoundError:
        return None
    except TableError as error:
        raise StateError(str(error)) from error
    except UnicodeDecodeError as error:
        raise StateError("is not text") from error
    from google.protobuf import text_format

    message = proto.message_class("CheckpointState")()
    try:
        text_format.Merge(text, message)
    except text_format.ParseError as error:
        raise StateError(f"cannot be read by TensorFlow ({error})") from error
    if not message.model_checkpoint_path:
        raise StateError("names no checkpoint")
    latest = os.path.join(folder, message.model_checkpoint_path)
    paths = [os.path.join(folder, each) for each in message.all_model_checkpoint_paths]
    if any("\0" in path for path in (latest, *paths)):
        raise StateError("names a path with a NUL character")
    times = tuple(message.all_model_checkpoint_timestamps)
    return State(
        latest=latest,
        paths=tuple(paths) or (latest,),
        timestamps=times if len(times) == len(paths) else (),
        last_preserved=message.last_preserved_timestamp or None,
    )


def readable_state(folder: str) -> State | None:
    """Return the content of a folder's state file; None if missing or malformed."""
    try:
        return read_state(folder)
    except StateError:
        return None


def check(path: str) -> None:
    """Check that TensorFlow can read a state file, which need not exist, in a moment.

    Raises:
        CheckpointError: If the path is a named pipe, at which TensorFlow would wait for
            a writer, or a device or huge file, of which it would fill the memory.
    """
    try:
        reading.content(path)
    except TableError as error:
        raise CheckpointError(
            f"{path!r} {error}; remove it, or give another folder"
        ) from error
    except OSError:  # TensorFlow gets the same, and says so
        return


def write_state(folder: str, state: State, relative: bool = True) -> None:
    """Replace the state file of a folder atomically and durably.

    Args:
        folder: The folder.
        state: The new content.
        relative: Whether to write paths in `folder` relative to it, so that the folder
            can be moved.

    Raises:
        OSError: If the file cannot be written. The old file is unchanged.
    """
    from google.protobuf import text_format

    def shown(path: str) -> str:
        inside = os.path.normpath(os.path.dirname(path)) == os.path.normpath(folder)
        if relative:
            return os.path.basename(path) if inside else path
        return os.path.abspath(path)

    message = proto.message_class("CheckpointState")(
        model_checkpoint_path=shown(state.latest),
        all_model_checkpoint_paths=map(shown, state.paths),
        all_model_checkpoint_timestamps=state.timestamps,
        last_preserved_timestamp=state.last_preserved,
    )
    content = text_format.MessageToString(message).encode()
    durable.replace_file(os.path.join(folder, STATE_FILE), content)
