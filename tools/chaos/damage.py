"""Random damage to a copy of a model directory."""

import dataclasses
import os
import random
import re
import shutil
import time
from pathlib import Path

from tools.chaos.pristine import CRASHED, STEPS


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
            # Another damage may have made it a folder.
            shutil.rmtree(path) if path.is_dir() else path.unlink()
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
    *(damage_checkpoint, leave_stock_files),
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
