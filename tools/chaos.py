"""Damages model directories and jobs at random, and checks that nothing is lost.

    python tools/chaos.py folders --count 1000 --seed 1
    python tools/chaos.py jobs --faults 200 --seed 1
    python tools/chaos.py folders --seed 1 --only 17  # one item of that run again

`folders` trains a few steps in damaged copies of a model directory. A training must go
on from the newest good checkpoint (or from the one that the state file names), with all
values of one step, or be refused with a CheckpointError if no checkpoint is good. No
good checkpoint may be lost. What is good is decided here, by comparing bytes.

`jobs` starts real jobs and sends SIGKILL, SIGSTOP and SIGTERM to their tasks, to the
fork server and to the launcher. A job must end well, with every checkpoint consistent
and nothing left running.

All that is random follows from the seed and the number of the item; only the moment at
which a signal arrives also depends on the machine. What a violation needs to be looked
at is kept in the folder of the run. The exit status is 1 if there is any.
"""

import argparse
import collections
import dataclasses
import hashlib
import json
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from typing import Any

Path = pathlib.Path
STEPS = (100, 200, 300, 400, 500)
CRASHED = 600  # the step whose save is cut off in a crash image
TRAINED = 3  # steps of the session in each folder
ITEM_SECS = 120.0
SHAPES = ([3], [200], [7, 5], [1], [64], [2, 2])
# What follows the number is no part of a name, but some readers may forgive it.
NAME = re.compile(r"model\.ckpt-(\d+)(\.index|\s+|\0)?")


def main() -> int:
    """Run the chosen kind of chaos; return 1 if it found a violation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    folders = commands.add_parser("folders", help="damage model directories")
    folders.add_argument("--count", type=int, default=1000)
    folders.add_argument("--processes", type=int, default=2, help="default: 2")
    jobs = commands.add_parser("jobs", help="send signals to jobs")
    jobs.add_argument("--faults", type=int, default=200)
    jobs.add_argument("--deadline", type=float, default=400, help="of a job, in s")
    for each in (folders, jobs):
        each.add_argument("--seed", default="1")
        each.add_argument("--only", type=int, metavar="K", help="item K alone")
        each.add_argument("--work", help="folder of the run; default: a new one")
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # So that what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = Path(options.work or tempfile.mkdtemp(prefix="chaos-")).resolve()
    work.mkdir(parents=True, exist_ok=True)
    print(f"seed {options.seed}, in {work}", flush=True)
    began = time.monotonic()
    run = run_folders if options.what == "folders" else run_jobs
    violations = run(options, work)
    print(f"{violations} violations in {time.monotonic() - began:.0f} s")
    return 1 if violations else 0


# --- folders: the pristine ones ---------------------------------------------------


class Model:
    """A model whose variables all tell the step; in the default graph.

    Attributes:
        fetches: The global step and all variables.
        train: Op that adds `by` to all of them.
        by: Placeholder; 1 by default.
    """

    def __init__(self, shards: int, keep: int):
        import tensorflow as tf

        v1 = tf.compat.v1
        step = v1.train.get_or_create_global_step()
        self.by = v1.placeholder_with_default(1, [])
        variables = []
        for i, shape in enumerate(SHAPES):
            with tf.device(f"/cpu:{i % shards}"):
                value = tf.fill(shape, float(i))
                variables.append(v1.get_variable(f"v{i}", initializer=value))
        by = tf.cast(self.by, tf.float32)
        added = [v.assign_add(tf.fill(v.shape, by)) for v in variables]
        self.train = tf.group(step.assign_add(tf.cast(self.by, step.dtype)), *added)
        self.fetches = [step, *variables]
        saver = v1.train.Saver(
            sharded=shards > 1, max_to_keep=keep, save_relative_paths=True
        )
        self.scaffold = v1.train.Scaffold(saver=saver)

    def session(self, folder: Path, save_steps: int, hooks: Any = ()) -> Any:
        """Return the runtime's session of a folder."""
        import tensorflow as tf

        import estimator_runtime as er

        return er.MonitoredTrainingSession(
            checkpoint_dir=str(folder),
            scaffold=self.scaffold,
            hooks=hooks,
            save_checkpoint_steps=save_steps,
            save_summaries_steps=None,
            log_step_count_steps=None,
            config=tf.compat.v1.ConfigProto(device_count={"CPU": 2}),
        )


def step_of_values(values: list[Any]) -> int | None:
    """Return the step that all values tell, or None if they differ."""
    step = int(values[0])
    same = all((v == step + i).all() for i, v in enumerate(values[1:]))
    return step if same else None


def build(work: Path) -> None:
    """Make the pristine folders, and images of folders whose save was cut off.

    An image is taken before each call that changes names or waits for the disk, while
    the runtime saves one step more and lets the oldest checkpoint go.
    """
    import tensorflow as tf

    for shards in (1, 2):
        base = work / f"base-{shards}"
        shutil.rmtree(base, ignore_errors=True)
        # The runtime writes one file, the Saver as many as there are devices.
        os.environ["ESTIMATOR_RUNTIME_ASYNC_CHECKPOINT"] = "1" if shards == 1 else "0"
        with tf.Graph().as_default():
            model = Model(shards, keep=len(STEPS))
            with model.session(base / "plain", 100) as session:
                for _ in STEPS:
                    session.run(model.train, {model.by: 100})
        shutil.copytree(base / "plain", base / "saved")
        del os.environ["ESTIMATOR_RUNTIME_ASYNC_CHECKPOINT"]
        with tf.Graph().as_default():
            model = Model(shards, keep=len(STEPS))
            session = model.session(base / "saved", 100)
            session.run(model.train)
            with images(base / "saved", base), session:
                session.run(model.train, {model.by: 99})
        for state in base.glob("*/checkpoint"):
            # So that the same seed flips the same bits in each run.
            stat = state.stat()
            state.write_text(
                re.sub(r"\b1\d{9}\.\d+", "1700000000.5", state.read_text())
            )
            os.utime(state, (stat.st_atime, stat.st_mtime))


class images:
    """Copies a folder, inside of `with`, before each call that changes it."""

    NAMES = ("rename", "replace", "fsync", "unlink", "rmdir")

    def __init__(self, folder: Path, target: Path):
        self._folder, self._target = folder, target
        self._old = {name: getattr(os, name) for name in self.NAMES}
        self._lock = threading.RLock()
        self._count, self._is_copying = 0, False

    def __enter__(self) -> None:
        for name, call in self._old.items():
            setattr(os, name, self._after_image(call))

    def __exit__(self, *_: object) -> None:
        for name, call in self._old.items():
            setattr(os, name, call)

    def _after_image(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            with self._lock:
                if not self._is_copying:
                    self._is_copying = True
                    target = self._target / f"image-{self._count:02d}"
                    shutil.copytree(self._folder, target)
                    self._count, self._is_copying = self._count + 1, False
            return call(*arguments, **keywords)

        return wrapped


# --- folders: damages -------------------------------------------------------------


@dataclasses.dataclass
class Item:
    """One damaged folder.

    Attributes:
        folder: The model directory.
        random: The only source of chance.
        base: What it is a copy of.
        kinds: What was done, for the table.
        story: The same in detail.
        may_go: Steps that retention may delete.
    """

    folder: Path
    random: random.Random
    base: Path
    kinds: list[str] = dataclasses.field(default_factory=list)
    story: list[str] = dataclasses.field(default_factory=list)
    may_go: set[int] = dataclasses.field(default_factory=set)

    def files(self) -> list[Path]:
        """Return all files, those of the newest and the state file several times."""
        found = [path for path in sorted(self.folder.rglob("*")) if path.is_file()]
        newest = [path for path in found if "-500." in path.name]
        return found + newest * 2 + [p for p in found if p.name == "checkpoint"] * 6


def damage_file(item: Item) -> str:
    """Damage one file, or exchange two."""
    chance = item.random
    path = chance.choice(item.files())
    content = bytearray(path.read_bytes())
    size, how = len(content), chance.choice(FILE_DAMAGES)
    same = [p for p in item.files() if p.suffix == path.suffix and p != path]
    other = chance.choice(same or item.files())
    if how == "flip" and size:
        for _ in range(chance.choice((1, 1, 1, 8))):
            content[chance.randrange(size)] ^= 1 << chance.randrange(8)
    elif how == "truncate" and size:
        del content[chance.randrange(size) :]
    elif how == "extend":
        content += chance.randbytes(chance.randint(1, 5000))
    elif how == "zero" and size:
        begin = chance.randrange(size)
        end = min(size, begin + chance.choice((1, 16, 512, size)))
        content[begin:end] = bytes(end - begin)
    elif how == "garbage":
        content = bytearray(chance.randbytes(size))
    elif how == "empty":
        content.clear()
    elif how == "swap":
        content = bytearray(other.read_bytes())
        other.write_bytes(path.read_bytes())
    elif how == "copy":
        content = bytearray(other.read_bytes())
    if how in ("delete", "folder", "link to nothing"):
        path.unlink()
        if how == "folder":
            path.mkdir()
        elif how == "link to nothing":
            path.symlink_to("nothing")
    elif how == "rename":
        new = chance.choice((path.name + ".bak", re.sub(r"-\d+", "-700", path.name)))
        path.rename(path.with_name(new))
    elif how == "no permission":
        path.chmod(0)
    else:
        path.write_bytes(content)
    kind = "state file" if path.name == "checkpoint" else path.suffix[:5] or "hidden"
    item.story.append(f"{how}: {path.relative_to(item.folder)}")
    if how in ("swap", "copy"):
        item.story.append(f"  with {other.relative_to(item.folder)}")
    return f"{how} ({kind})"


FILE_DAMAGES = (
    *("flip", "flip", "truncate", "extend", "zero", "garbage", "empty", "delete"),
    *("swap", "copy", "folder", "rename", "link to nothing"),
    *(["no permission"] if os.getuid() else []),
)


def damage_checkpoint(item: Item) -> str:
    """Damage a whole checkpoint: delete, rename, or exchange with another."""
    chance = item.random
    step, other = chance.sample(STEPS, 2)
    how = chance.choice(("delete", "rename", "swap"))
    item.story.append(f"{how}: all of {step}" + f" and {other}" * (how == "swap"))
    for path in sorted(item.folder.glob(f"model.ckpt-{step}.*")):
        twin = path.with_name(path.name.replace(f"-{step}.", f"-{other}."))
        if how == "delete":
            path.unlink()
        elif how == "rename":
            path.rename(path.with_name(path.name.replace(f"-{step}.", "-700.")))
        elif path.is_file() and twin.is_file():
            ours, theirs = path.read_bytes(), twin.read_bytes()
            path.write_bytes(theirs)
            twin.write_bytes(ours)
    return f"{how} a whole checkpoint"


def rewrite_state(item: Item) -> str:
    """Write the state file as a person or another program might."""
    chance = item.random
    how, template = chance.choice(sorted(STATES.items()))
    step = chance.choice(STEPS)
    named = [s for s in STEPS if s <= step] if chance.random() < 0.5 else STEPS
    paths = "".join(f'all_model_checkpoint_paths: "model.ckpt-{s}"\n' for s in named)
    times = "".join(f"all_model_checkpoint_timestamps: {17e8 + s}\n" for s in named)
    text = template.format(
        name=f"model.ckpt-{step}", here=item.folder, paths=paths, times=times
    )
    path = item.folder / "checkpoint"
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.write_bytes(text.encode("latin-1"))
    item.story.append(f"state file: {text!r}")
    return f"state: {how}"


_HEAD = 'model_checkpoint_path: "{name}"\n'
STATES = {
    "rewind": _HEAD + "{paths}{times}",
    "rewind, one line": _HEAD,
    "single quotes": "model_checkpoint_path: '{name}'\n{paths}",
    "no quotes": "model_checkpoint_path: {name}\n{paths}{times}",
    "one quote": 'model_checkpoint_path: "{name}\n{paths}',
    "no colon": 'model_checkpoint_path "{name}"\n{paths}',
    "in two parts": 'model_checkpoint_path: "model." "ckpt-400"\n{paths}',
    "all on one line": 'model_checkpoint_path: "{name}" last_preserved_timestamp: 1.5',
    "a comment": "# back to {name}\n" + _HEAD + "{paths}",
    "CRLF": 'model_checkpoint_path: "{name}"\r\n',
    "a byte order mark": "\xef\xbb\xbf" + _HEAD + "{paths}",
    "unknown field": _HEAD + "{paths}note: 1\n",
    "field twice": _HEAD + _HEAD + "{paths}",
    "time with a leading 0": _HEAD + "{paths}last_preserved_timestamp: 0171.5\n",
    "time is a word": _HEAD + "{paths}last_preserved_timestamp: now\n",
    "time is nan": _HEAD + "{paths}last_preserved_timestamp: nan\n",
    "fewer times": _HEAD + "{paths}all_model_checkpoint_timestamps: 1.5\n",
    "absolute here": 'model_checkpoint_path: "{here}/{name}"\n{paths}',
    "absolute elsewhere": 'model_checkpoint_path: "/nowhere/{name}"\n{paths}',
    "absent step": 'model_checkpoint_path: "model.ckpt-999"\n{paths}',
    "absent name": 'model_checkpoint_path: "other.ckpt-400"\n{paths}',
    "absent elsewhere": 'model_checkpoint_path: "/nowhere/other-1"\n{paths}',
    "all absent": 'model_checkpoint_path: "x-9"\nall_model_checkpoint_paths: "x-8"\n',
    "star": 'model_checkpoint_path: "*"\n{paths}',
    "glob": 'model_checkpoint_path: "model.ckpt-[45]00"\n{paths}',
    "question marks": 'model_checkpoint_path: "model.ckpt-???"\n{paths}',
    "a folder": 'model_checkpoint_path: "/etc"\n{paths}',
    "dots": 'model_checkpoint_path: "../{name}"\n{paths}',
    "dot": 'model_checkpoint_path: "./{name}"\n{paths}',
    "trailing newline": 'model_checkpoint_path: "{name}\\n"\n{paths}',
    "NUL": 'model_checkpoint_path: "{name}\\000"\n{paths}',
    "NUL in the paths": _HEAD + 'all_model_checkpoint_paths: "a\\000b"\n',
    "not UTF-8": _HEAD + 'all_model_checkpoint_paths: "\xff\xfe"\n',
    "with suffix": 'model_checkpoint_path: "{name}.index"\n{paths}',
    "empty name": 'model_checkpoint_path: ""\n{paths}',
    "paths only": "{paths}",
    "JSON": '{{"model_checkpoint_path": "{name}"}}\n',
}


def plant_note(item: Item) -> str:
    """Leave a hidden folder as of a dead save, with a note of what to delete."""
    chance = item.random
    images_of = sorted(item.base.parent.glob("image-*/.*.saving-*/"))
    owner = chance.choice((*STEPS, CRASHED, 999))
    name = re.sub(r"-\d+", f"-{owner}", images_of[0].name, count=1)
    hidden, note = item.folder / name, chance.choice(("gone.json", "late.json"))
    hidden.mkdir(exist_ok=True)
    older = [step for step in STEPS if step < owner]
    prefix = f"{item.folder}/model.ckpt-"
    how, content = chance.choice(
        (
            ("of older", json.dumps([f"{prefix}{step}" for step in older])),
            ("of the newest", json.dumps([f"{prefix}400", f"{prefix}500"])),
            ("of all", json.dumps([f"{prefix}{step}" for step in STEPS])),
            ("with NUL", json.dumps([f"{prefix}100\0"])),
            ("of another kind", chance.choice(("{}", "5", '"model"', "null", "[1]"))),
            ("of another kind", '[["model.ckpt-500"]]'),
            ("cut off", '["/model.ck'),
            ("not UTF-8", '["\xff"]'),
        )
    )
    (hidden / note).write_bytes(content.encode("latin-1"))
    item.may_go.update(older)
    item.story.append(f"planted {name}/{note}: {content!r}")
    return f"{note} {how}"


def leave_stock_files(item: Item) -> str:
    """Leave what TensorFlow's own Saver leaves when it is killed."""
    chance = item.random
    step = chance.choice((*STEPS, CRASHED))
    name = chance.choice(
        (
            f"checkpoint.tmp{chance.getrandbits(128):032x}",
            f"model.ckpt-{step}.index.tempstate{chance.getrandbits(60)}",
            f"model.ckpt-{step}.data-00000-of-00001.tempstate1",
            f"model.ckpt-{step}_temp/part-00000-of-00001.data-00000-of-00001",
        )
    )
    path = item.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(chance.randbytes(chance.choice((0, 300))))
    old = time.time() - chance.choice((0, 5000))
    os.utime(path, (old, old))
    item.story.append(f"left {name}")
    return "left by a Saver"


DAMAGES = (
    *(damage_file, damage_file, damage_file, rewrite_state, rewrite_state),
    *(damage_checkpoint, plant_note, leave_stock_files),
)


def make_item(number: int, seed: str, work: Path) -> Item:
    """Copy a pristine folder or an image of a crash, and damage the copy."""
    chance = random.Random(f"{seed}:{number}")
    base = work / f"base-{chance.choice((1, 2))}" / "plain"
    is_crash = chance.random() < 0.25
    if is_crash:
        base = chance.choice(sorted(base.parent.glob("image-*")))
    item = Item(work / "items" / str(number) / "model", chance, base)
    shutil.rmtree(item.folder.parent, ignore_errors=True)
    no_events = shutil.ignore_patterns("events.*", "graph.pbtxt")
    shutil.copytree(base, item.folder, ignore=no_events)
    item.story.append(f"a copy of {base.relative_to(work)}")
    if is_crash:
        item.kinds.append("a save that was killed")
        item.may_go.add(STEPS[0])
    for _ in range(chance.choice((0, 1) if is_crash else (1, 1, 2))):
        item.kinds.append(chance.choice(DAMAGES)(item))
    return item


# --- folders: the oracle ----------------------------------------------------------


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
    bytes after its end.
    """
    named, is_exact, listed = named_steps(item.folder)
    was_named, *_ = named_steps(item.base)
    # Complete, but not in the state file when the save was cut off. Whoever has named
    # another one since then wants that.
    is_uncommitted = item.base.name.startswith("image-") and named == was_named
    uncommitted = {CRASHED} if is_uncommitted or named not in good else set()
    if named in good and is_exact:
        return {good[named], *uncommitted}, False
    newest = {max(names) for names in (good, good.keys() - {CRASHED}) if names}
    newest |= set(sorted(good.keys() & set(listed))[-1:])
    if named is not None:  # the one before it is right as well
        newest |= set(sorted(name for name in good if name < named)[-1:])
    return {*(good[name] for name in newest), named or 0, *uncommitted} - {0}, True


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
    if start not in allowed and not (or_later and start > max(allowed, default=0)):
        return "wrong", f"started from {start}, not from {sorted(allowed)}"
    if outcome["saved"] != start + TRAINED:
        return "wrong", f"saved {outcome['saved']} after {start} + {TRAINED}"
    return ("rewind" if start < max(good.values(), default=0) else "newest"), None


def lost_checkpoint(item: Item, good: dict[int, int]) -> str | None:
    """Return which good checkpoint is gone, changed or moved, or None."""
    left = good_checkpoints(item.folder, item.base)
    gone = [name for name, step in good.items() if left.get(name) != step]
    # Never named by a state file, the last one may go.
    gone = sorted({*gone} - item.may_go - {CRASHED})
    hashes = {digest(path) for path in item.folder.rglob("*") if path.is_file()}
    for name in gone:
        source = item.base.parent / "plain"
        if not hashes.issuperset(restored_files(source, good[name]).values()):
            return f"the good checkpoint {name} is gone (of {gone})"
    return f"good checkpoints {gone} were moved" if gone else None


def train_on(folder: Path, shards: int) -> dict[str, Any]:
    """Train a few steps in a folder; return what was seen."""
    import tensorflow as tf

    from estimator_runtime import EstimatorRuntimeError

    starts: list[Any] = []

    class Seen(tf.compat.v1.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            starts.append(step_of_values(session.run(model.fetches)))

    outcome: dict[str, Any] = {
        "error": None,
        "is_ours": True,
        "start": None,
        "saved": None,
    }
    try:
        with tf.Graph().as_default():
            model = Model(shards, keep=100)
            with model.session(folder, 1000, [Seen()]) as session:
                for _ in range(TRAINED):
                    session.run(model.train)
        path = tf.train.latest_checkpoint(str(folder))
        reader = tf.train.load_checkpoint(path)
        names = ["global_step", *(f"v{i}" for i in range(len(SHAPES)))]
        outcome["saved"] = step_of_values([reader.get_tensor(n) for n in names])
    except Exception as error:  # noqa: BLE001 - which kind it is, is judged
        first_line = str(error).partition("\n")[0]
        outcome["error"] = f"{type(error).__name__}: {first_line}"
        outcome["is_ours"] = isinstance(error, EstimatorRuntimeError)
        outcome["traceback"] = traceback.format_exc()
    if starts:
        outcome["start"] = "mixed" if starts[0] is None else starts[0]
    return outcome


# --- folders: running -------------------------------------------------------------


def serve(connection: Any, work: Path, seed: str, log: Path) -> None:
    """Do items in a process of their own: a crash costs one item.

    A number is an item; "build" makes the pristine folders.
    """
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import estimator_runtime as er

    er.install()
    while (request := connection.recv()) is not None:
        if request == "build":
            build(work)
            connection.send(None)
        else:
            connection.send(run_item(request, seed, work))


def run_item(number: int, seed: str, work: Path) -> dict[str, Any]:
    """Damage a folder, train in it, and judge; keep the folder of a violation."""
    item = make_item(number, seed, work)
    before = item.folder.with_name("before")
    shutil.copytree(item.folder, before, symlinks=True)
    good = good_checkpoints(item.folder, item.base)
    starts = allowed_starts(item, good)
    shards = int(item.base.parent.name.rpartition("-")[2])
    outcome = train_on(item.folder, shards)
    what, problem = judge(item, good, starts, outcome)
    result = {"number": number, "kinds": item.kinds, "what": what, "problem": problem}
    result |= {"story": item.story, "outcome": outcome, "good": sorted(good)}
    if problem is None:
        shutil.rmtree(item.folder.parent)
    else:
        report = item.folder.with_name("report.json")
        report.write_text(json.dumps(result, indent=1))
    return result


class Worker:
    """A process that does items; replaced when it dies or hangs."""

    def __init__(self, work: Path, seed: str, index: int):
        self._arguments = (work, seed, work / f"worker-{index}.log")
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, *self._arguments))
        self._process.start()
        theirs.close()

    def do(self, request: Any) -> Any:
        """Return the result of a request, or a violation if the process failed."""
        self._connection.send(request)
        problem = f"no end within {ITEM_SECS:g} s"
        try:
            if self._connection.poll(ITEM_SECS):
                return self._connection.recv()
        except EOFError:
            self._process.join()
            problem = f"the process died with {self._process.exitcode}"
        self._process.kill()
        self._process.join()
        self._start()
        return {"number": request, "kinds": ["?"], "what": "died", "problem": problem}

    def end(self) -> None:
        """End the process."""
        self._connection.send(None)
        self._process.join()


def run_folders(options: argparse.Namespace, work: Path) -> int:
    """Run all items, print each violation and a table; return their number."""
    # A process of its own: what it left half done has to be a dead one's.
    builder = Worker(work, options.seed, 0)
    failed = builder.do("build")
    builder.end()
    if failed is not None:
        print(f"the pristine folders were not made ({failed['problem']}): see {work}")
        return 1
    only = options.only
    numbers = iter(range(options.count) if only is None else [only])
    lock, results = threading.Lock(), []

    def consume(worker: Worker) -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return worker.end()
            result = worker.do(number)
            with lock:
                results.append(result)
                if result["problem"] or only is not None:
                    show(result, work)

    count = 1 if only is not None else options.processes
    workers = [Worker(work, options.seed, i) for i in range(count)]
    threads = [threading.Thread(target=consume, args=(each,)) for each in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print_table(results)
    return sum(result["problem"] is not None for result in results)


def show(result: dict[str, Any], work: Path) -> None:
    """Print one result with all that led to it."""
    number = result["number"]
    print(f"{number}: {result['problem'] or 'right: ' + result['what']}")
    for line in result.get("story", []):
        print(f"    {line}")
    print(f"    again: --only {number}; {work / 'items' / str(number)}", flush=True)


def print_table(results: list[dict[str, Any]]) -> None:
    """Print how many came to what, by kind of damage; two kinds count twice."""
    columns = sorted({result["what"] for result in results})
    rows: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    for result in results:
        for kind in {*result["kinds"], "all"}:
            rows[kind][result["what"]] += 1
            rows[kind]["violations"] += result["problem"] is not None
    columns.append("violations")
    widths = [max(6, len(column)) for column in columns]
    print(" " * 32, *(c.rjust(w) for c, w in zip(columns, widths, strict=True)))
    for kind in sorted(rows, key=lambda kind: (kind == "all", kind)):
        counts = (str(rows[kind][column] or "-") for column in columns)
        cells = (c.rjust(w) for c, w in zip(counts, widths, strict=True))
        print(kind[:32].ljust(32), *cells)


# --- jobs -------------------------------------------------------------------------

SAVE_STEPS = {"ps": 150, "gang": 60}
LAST_STEP = {"ps": 900, "gang": 360}
# So many steps before, trainers wait until all faults have been made.
GATE_STEPS = 60
MARKER = "ESTIMATOR_RUNTIME_CHAOS"
HEARTBEAT_SECS = 6
GONE_SECS = 45.0
# Steps that workers take while variables are read one after the other, or while the
# chief begins to save. A torn restore differs by up to a save interval.
SLACK = 10

PROGRAM = """
import os
import sys
import time

import tensorflow as tf

kind, last, save_steps, gate = sys.argv[1], *map(int, sys.argv[2:])
v1 = tf.compat.v1
print("pid", os.getpid(), flush=True)


def model_fn(features, labels, mode):
    step = v1.train.get_global_step()
    values = [
        v1.get_variable(f"v{i}", initializer=[float(i)] * (9 + i)) for i in range(5)
    ]
    loss = -tf.add_n([tf.reduce_sum(value) for value in values])
    if kind == "gang":  # each gradient is -1
        train_op = v1.train.GradientDescentOptimizer(1.0).minimize(loss, step)
        return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)
    train_op = tf.no_op()
    for value in values:
        with tf.control_dependencies([train_op]):
            train_op = value.assign_add(tf.ones_like(value)).op
    with tf.control_dependencies([train_op]):
        train_op = step.assign_add(1).op
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


class Tell(v1.train.SessionRunHook):
    def begin(self):
        found = {v.name: v for v in v1.global_variables()}
        values = [found[f"v{i}:0"] for i in range(5)]
        self.fetches = [v1.train.get_global_step(), *values]

    def after_create_session(self, session, coord):
        path = tf.train.latest_checkpoint("model")
        step, *values = session.run(self.fetches)
        spread = [float(v.flat[j]) - i for i, v in enumerate(values) for j in (0, -1)]
        print("session", step, path and path.rpartition("-")[2], *spread, flush=True)

    def before_run(self, context):
        return v1.train.SessionRunArgs(self.fetches[0])

    def after_run(self, context, values):
        print("step", values.results, flush=True)
        time.sleep(0.03)
        while values.results >= gate and not os.path.exists("finish"):
            time.sleep(0.05)


def input_fn():
    return tf.data.Dataset.from_tensors(([1.0], [1.0])).repeat()


config = tf.estimator.RunConfig(
    "model",
    save_checkpoints_steps=save_steps,
    keep_checkpoint_max=1000,
    session_creation_timeout_secs=90,
    train_distribute=(
        tf.distribute.MultiWorkerMirroredStrategy() if kind == "gang" else None
    ),
)
tf.estimator.train_and_evaluate(
    tf.estimator.Estimator(model_fn, config=config),
    tf.estimator.TrainSpec(input_fn, max_steps=last, hooks=[Tell()]),
    tf.estimator.EvalSpec(input_fn, steps=1),
)
print("done", flush=True)
"""


class Violation(Exception):
    """A promise that did not hold; the message says which."""


class ChaosJob:
    """A job, started again whenever a fault has ended it as a whole.

    Attributes:
        kind: "ps" or "gang".
        last_step: Its `max_steps`.
        save_steps: Steps between two checkpoints.
        gate: The step at which trainers wait for the last fault.
        faults: What was done, in order.
        falls: By how many steps the chief's step has fallen, each time.
        spreads: By how much the values of each checkpoint differ from its step.
    """

    def __init__(self, number: int, seed: str, work: Path, deadline_secs: float):
        self.random = random.Random(f"{seed}:{number}")
        self.kind = self.random.choice(("ps", "ps", "gang"))
        self.last_step = LAST_STEP[self.kind]
        self.save_steps = SAVE_STEPS[self.kind]
        self.gate = self.last_step - GATE_STEPS
        self.folder = work / "jobs" / str(number)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "train.py").write_text(PROGRAM)
        self.faults: list[str] = []
        self.falls: list[int] = []
        self.spreads: list[int] = []
        self._marker = uuid.uuid4().hex
        self._deadline = time.monotonic() + deadline_secs
        self._resume: list[tuple[float, int]] = []
        self._excuses: list[str] = []

    @property
    def text(self) -> str:
        """All that the launcher has written."""
        return (self.folder / "job.log").read_text(errors="replace")

    @property
    def _lost_ps(self) -> bool:
        """Whether the chief restores now: its end then is the hardest case."""
        return bool(self.faults) and self.faults[-1].startswith("ps")

    def run(self, faults: int) -> None:
        """Run the job with so many faults.

        Raises:
            Violation: If a promise does not hold.
        """
        self._start()
        try:
            while len(self.faults) < faults:
                if self.random.random() < (0.3 if self._lost_ps else 0.6):
                    self._wait_for_steps(self.random.randint(1, 60))
                self._wait(self.random.choice((0.0, 0.3, 1.0, 2.5)))
                self._make_fault()
            (self.folder / "finish").touch()
            while self._launcher.poll() != 0:
                self._tick()
            self._check_gone()
        finally:
            for pid in self._processes():
                send(pid, signal.SIGKILL)
            self._launcher.wait()
        self._check_log()
        self._check_checkpoints()

    def _start(self) -> None:
        cluster = ["--workers", "1", *(["--ps", "2"] if self.kind == "ps" else [])]
        numbers = map(str, (self.last_step, self.save_steps, self.gate))
        command = [sys.executable, "-m", "estimator_runtime", "run", *cluster]
        command += ["--max-restarts", "100", "--grace", "20"]
        command += ["--heartbeat-timeout", str(HEARTBEAT_SECS)]
        environ = {**os.environ, MARKER: self._marker}
        environ.pop("TF_USE_LEGACY_KERAS", None)
        self._excuses.clear()
        with (self.folder / "job.log").open("ab") as log:
            log.write(b"\nchaos | starting the command\n")
            log.flush()
            self._launcher = subprocess.Popen(
                [*command, "train.py", self.kind, *numbers],
                cwd=self.folder,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _tick(self) -> None:
        """Wait a moment; start the command again if it ended."""
        self._resume_due()
        status = self._launcher.poll()
        if status:
            self._check_status(status)
            self._check_gone()
            self._start()
        elif time.monotonic() > self._deadline:
            raise Violation(f"it hangs: {'; '.join(self._listing())}")

    def _resume_due(self) -> None:
        """Wait a moment; resume the stopped processes whose time has come."""
        time.sleep(0.05)
        for due in [each for each in self._resume if each[0] <= time.monotonic()]:
            self._resume.remove(due)
            if due[1] in self._processes():
                send(due[1], signal.SIGCONT)
                self._note(f"CONT {due[1]}")

    def _check_status(self, status: int) -> None:
        right = {"launcher KILL": -9, "launcher TERM": 143, "fork server KILL": 1}
        if "| pid" not in self.text.rpartition("starting the command")[2]:
            right["launcher TERM"] = -15 if status == -15 else 143  # python's own start
        if status not in [right[each] for each in self._excuses]:
            because = ", ".join(self._excuses) or "nothing that ends a job"
            raise Violation(f"it ended with status {status} after {because}")

    def _check_gone(self) -> None:
        deadline = time.monotonic() + GONE_SECS
        while self._processes():
            if time.monotonic() > deadline:
                raise Violation(f"processes stay: {'; '.join(self._listing())}")
            self._resume_due()  # a stopped fork server cannot see that it has to end

    def _wait(self, secs: float) -> None:
        end = time.monotonic() + secs
        while time.monotonic() < end:
            self._tick()

    def _wait_for_steps(self, count: int) -> None:
        """Wait until the chief has taken some steps more, or is at the gate."""
        wanted = len(re.findall(r"^chief +\| step \d", self.text, re.M)) + count
        while True:
            steps = re.findall(r"^chief +\| step (\d+)", self.text, re.M)
            if len(steps) >= wanted or (steps and int(steps[-1]) >= self.gate):
                return
            self._tick()

    def _make_fault(self) -> None:
        found = {}
        for pid in self._processes():
            if pid == self._launcher.pid:
                found["launcher"] = pid
            elif re.fullmatch(r"(chief|worker|ps) \d+", name := name_of(pid)):
                found[name] = pid
            elif parent_of(pid) == self._launcher.pid:
                found["fork server"] = pid
        tasks = [name for name in found if name not in ("launcher", "fork server")]
        # Tasks first: the others end all.
        names = sorted(tasks) * 3 + sorted(found)
        if not names or (not tasks and self.random.random() < 0.8):
            return self._tick()
        if self._lost_ps and "chief 0" in found and self.random.random() < 0.5:
            names = ["chief 0"]
        name = self.random.choice(names)
        how = self.random.choice(("KILL", "STOP", "TERM"))
        if name == "fork server" and how == "TERM":
            how = "KILL"  # it is deaf to the other
        number, pid = getattr(signal, f"SIG{how}"), found[name]
        self.faults.append(f"{name} {how}")
        self._note(f"{name} {how} {pid}")
        if name not in tasks and how != "STOP":
            self._excuses.append(f"{name} {how}")
        send(pid, number)
        # Stopped tasks are for the launcher to kill; nobody watches the others.
        if how == "STOP" and (name not in tasks or self.random.random() < 0.4):
            secs = self.random.uniform(0.5, 1.5 * HEARTBEAT_SECS)
            self._resume.append((time.monotonic() + secs, pid))
            if name == "fork server" and self.random.random() < 0.5:
                self.faults.append("launcher TERM")
                self._excuses.append("launcher TERM")
                self._note(f"launcher TERM {self._launcher.pid}")
                send(self._launcher.pid, signal.SIGTERM)
        return None

    def _note(self, text: str) -> None:
        with (self.folder / "job.log").open("a") as log:
            log.write(f"chaos | {time.strftime('%X')} {text}\n")

    def _processes(self) -> set[int]:
        """Return the pids of all processes of the job that live."""
        wanted, found = f"{MARKER}={self._marker}".encode(), set()
        for entry in filter(str.isdigit, os.listdir("/proc")):
            if wanted in read_proc(int(entry), "environ").split(b"\0"):
                found.add(int(entry))
        return found

    def _listing(self) -> Iterator[str]:
        for pid in sorted(self._processes()):
            state = read_proc(pid, "stat").rpartition(b")")[2].split()[:1]
            yield f"{pid} {name_of(pid)} {state}"

    def _check_log(self) -> None:
        """Check the values that each session began with, and the chief's steps."""
        last_step = None
        pattern = r"^(chief|worker \d+) +\| (step|session) (\d+)(.*)$"
        for task, what, number, rest in re.findall(pattern, self.text, re.M):
            step = int(number)
            newest, *values = rest.split() or ["None", number]
            spread = max(abs(float(value) - step) for value in values)
            if spread > (SLACK if self.kind == "ps" else 0):
                raise Violation(f"a session of step {step} had values {values}")
            if what == "step" and task == "chief":
                last_step = step
            if what == "step" or task != "chief":
                continue
            if newest != "None" and step < int(newest):
                raise Violation(f"a session began at {step}, the newest was {newest}")
            if last_step is not None and step < last_step:
                self.falls.append(last_step - step)
                if last_step - step > self.save_steps + SLACK:
                    raise Violation(f"the step fell from {last_step} to {step}")
                last_step = step

    def _check_checkpoints(self) -> None:
        """Check that each checkpoint can be read, with the values of its step."""
        import tensorflow as tf

        model, steps = self.folder / "model", []
        for index in sorted(model.glob("model.ckpt-*.index")):
            reader = tf.train.load_checkpoint(str(index.with_suffix("")))
            step = int(reader.get_tensor("global_step"))
            steps.append(step)
            values = [reader.get_tensor(f"v{i}") - i for i in range(5)]
            spread = max(abs(value - step).max() for value in values)
            self.spreads.append(int(spread))
            if spread > (SLACK if self.kind == "ps" else 0):
                raise Violation(f"{index.name} has step {step}, values {values}")
        if max(steps, default=0) < self.last_step:
            raise Violation(f"it ended well at step {max(steps, default=0)}")
        newest = tf.train.latest_checkpoint(str(model))
        if int(tf.train.load_variable(newest, "global_step")) != max(steps):
            raise Violation(f"the state file names {newest}, not {max(steps)}")
        if list(model.glob("damaged*")):
            raise Violation("a checkpoint was damaged")


def send(pid: int, number: int) -> None:
    """Send a signal to a process, if it is still there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def read_proc(pid: int, name: str) -> bytes:
    """Return what the kernel says about a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def name_of(pid: int) -> str:
    """Return the name of a process, such as "worker 0"."""
    return read_proc(pid, "comm").decode(errors="replace").strip()


def parent_of(pid: int) -> int:
    """Return the pid of a process's parent; 0 if it is gone."""
    fields = read_proc(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def run_jobs(options: argparse.Namespace, work: Path) -> int:
    """Run jobs until there were enough faults; return the number of violations."""
    counts: collections.Counter[str] = collections.Counter()
    violations, spreads = 0, [0]
    falls: dict[str, list[int]] = {"ps": [0], "gang": [0]}
    number = 0 if options.only is None else options.only
    while counts.total() < options.faults:
        job = ChaosJob(number, options.seed, work, options.deadline)
        began, problem = time.monotonic(), None
        try:
            job.run(job.random.randint(3, 6))
        except Violation as error:
            problem = str(error)
            violations += 1
        counts.update(f"{job.kind}: {fault}" for fault in job.faults)
        falls[job.kind] += job.falls
        spreads += job.spreads if job.kind == "ps" else []
        took = time.monotonic() - began
        print(
            f"{number}: {job.kind}, {', '.join(job.faults)}: {took:.0f} s", flush=True
        )
        if problem:
            print(f"    VIOLATION: {problem}\n    again: --only {number}; {job.folder}")
        else:
            shutil.rmtree(job.folder)
        if options.only is not None:
            break
        number += 1
    for fault, count in sorted(counts.items()):
        print(f"{fault:24} {count:4}")
    print(f"{counts.total()} faults")
    for kind, each in falls.items():
        print(
            f"{kind}: the step fell by {max(each)} at most, saves: {SAVE_STEPS[kind]}"
        )
    print(
        f"ps: values in a checkpoint differed from its step by {max(spreads)} at most"
    )
    return violations


if __name__ == "__main__":
    sys.exit(main())
