"""What a training may do in a damaged model directory, decided by comparing bytes."""

import hashlib
import os
import re
from pathlib import Path
from typing import Any

from tools.chaos.damage import Item
from tools.chaos.pristine import CRASHED, STEPS

TRAINED = 3  # steps of the session in each folder
# What follows the number is no part of a name, but some readers may forgive it.
NAME = re.compile(r"model\.ckpt-(\d+)(\.index|\s+|\0)?")


def digest(path: Path) -> str | None:
    """Return the hash of a file's content, or None if there is no readable file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def restored_files(folder: Path, name: int) -> dict[str, str | None]:
    """Return the hashes of the files that a restore reads, by suffix."""
    files = [
        *folder.glob(f"model.ckpt-{name}.index"),
        *folder.glob(f"model.ckpt-{name}.data-?????-of-?????"),
    ]
    return {path.suffix: digest(path) for path in files}


def good_checkpoints(folder: Path, base: Path) -> dict[int, int]:
    """Return the step that each checkpoint holds, by the step in its name.

    Only those are there that are, byte for byte, what the runtime has saved. They may
    have other names: whole checkpoints are renamed and exchanged.
    """
    pristine = {step: restored_files(base.parent / "plain", step) for step in STEPS}
    pristine[CRASHED] = restored_files(base.parent / "saved", CRASHED)
    good = {}
    for index in folder.glob("model.ckpt-*.index"):
        name = int(index.stem.rpartition("-")[2])
        found = restored_files(folder, name)
        steps = [step for step, files in pristine.items() if files == found]
        good.update(dict.fromkeys([name], steps[0]) if steps else {})
    return good


def extended_step(item: Item, name: int) -> int | None:
    """Return the step whose files begin those of checkpoint ``name``, or None."""
    files = checkpoint_files(item.folder, name)
    for step in STEPS:
        originals = checkpoint_files(item.base.parent / "plain", step)
        if files.keys() == originals.keys() and all(
            files[part].startswith(original) for part, original in originals.items()
        ):
            return step
    return None


def checkpoint_files(folder: Path, step: int) -> dict[str, bytes]:
    """Return the content of each file of a checkpoint, by the file's suffix."""
    paths = folder.glob(f"model.ckpt-{step}.[id]*")
    return {path.suffix: path.read_bytes() for path in paths if path.is_file()}


def named_steps(folder: Path) -> tuple[int | None, bool, list[int]]:
    """Return what the state file names.

    It is read with TensorFlow's parser. Whatever folder it names, a checkpoint of that
    name in this one is meant: the folder may have been moved.

    Returns:
        (step of the checkpoint to go on from, or None if it names none; whether that is
        its exact name; the steps of all that it lists).
    """
    import google.protobuf.text_format as text_format
    from tensorflow.python.training.checkpoint_state_pb2 import CheckpointState

    state = CheckpointState()
    try:
        text_format.Merge((folder / "checkpoint").read_bytes().decode(), state)
    except (OSError, UnicodeDecodeError, text_format.ParseError):
        return None, False, []
    paths = [state.model_checkpoint_path, *state.all_model_checkpoint_paths]
    if any("\0" in path for path in paths):  # no file can have that name
        return None, False, []
    first, *others = (NAME.fullmatch(os.path.basename(path)) for path in paths)
    listed = [int(match[1]) for match in others if match]
    return (int(first[1]), first[2] is None, listed) if first else (None, False, listed)


def allowed_starts(item: Item, good: dict[int, int]) -> tuple[set[int], bool]:
    """Return the steps to start from, and whether later ones that are readable do too.

    A checkpoint that differs from the pristine one may still be readable, as with
    bytes after its end. One whose save was cut off counts only where the state file
    does not decide.
    """
    named, is_exact, listed = named_steps(item.folder)
    if named in good and is_exact:
        return {good[named]}, False
    newest = {max(names) for names in (good, good.keys() - {CRASHED}) if names}
    newest |= set(sorted(good.keys() & set(listed))[-1:])
    if named is not None and (step := extended_step(item, named)) is not None:
        good = {**good, named: step}
        newest |= {named}
    if named is not None:  # the one before it is right as well
        newest |= set(sorted(name for name in good if name < named)[-1:])
    return {*(good[name] for name in newest), named or 0} - {0}, True


def judge(
    item: Item,
    good: dict[int, int],
    starts: tuple[set[int], bool],
    outcome: dict[str, Any],
) -> tuple[str, str | None]:
    """Return (what came of it, what is wrong with that or None)."""
    allowed, or_later = starts
    error, start = outcome["error"], outcome["start"]
    # A training replaces what has the name of a step that it comes to.
    lost = lost_checkpoint(item, {n: s for n, s in good.items() if n != start})
    if error and not outcome["is_ours"]:
        return "raw error", f"a raw error: {error}"
    if lost:
        return "lost", lost
    if error and start is None:
        has_reason = any("folder" in k or "permission" in k for k in item.kinds)
        if good and not has_reason:
            return "refused", f"refused beside good {sorted(good)}: {error}"
        return ("reason" if good else "none good"), None
    if error:
        return "failed", f"an error after the start: {error}"
    if start == "mixed":
        return "mixed", "values of several steps"
    if start == 0:
        return "step 0", f"step 0 beside good {sorted(good)}"
    # One that is readable, such as with bytes after its end, beats an older one.
    is_later = or_later and start > max(good.values(), default=0)
    if start not in allowed and not is_later:
        return "wrong", f"started from {start}, not from {sorted(allowed)}"
    if outcome["saved"] != start + TRAINED:
        return "wrong", f"saved {outcome['saved']} after {start} + {TRAINED}"
    return ("rewind" if start < max(good.values(), default=0) else "newest"), None


def lost_checkpoint(item: Item, good: dict[int, int]) -> str | None:
    """Return which good checkpoint is gone, changed or moved, or None."""
    left = good_checkpoints(item.folder, item.base)
    gone = [name for name, step in good.items() if left.get(name) != step]
    # One that no state file has named may go.
    gone = sorted({*gone} - item.may_go - {CRASHED})
    hashes = {digest(path) for path in item.folder.rglob("*") if path.is_file()}
    for name in gone:
        source = item.base.parent / "plain"
        if not hashes.issuperset(restored_files(source, good[name]).values()):
            return f"the good checkpoint {name} is gone (of {gone})"
    return f"good checkpoints {gone} were moved" if gone else None
