"""Whenever whoever keeps the best checkpoints is killed, they stay usable."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from estimator_runtime.checkpoint.best import BestCheckpoints, Criterion
from estimator_runtime.checkpoint.checkpoint import Checkpoint, checkpoints_in
from estimator_runtime.checkpoint.store.state_file import read_state
from estimator_runtime.checkpoint.tensor_bundle.table import read_table, table

# Kills itself before the change of the file system whose number it is given.
OFFER = """\
import json, os, sys
from estimator_runtime.checkpoint.best import BestCheckpoints, Criterion

folder, number, losses, keep = json.loads(sys.argv[1])
CHANGES = ("os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir")

def count(event, arguments):
    global number
    is_write = event == "open" and arguments[1] in ("w", "wb", "x", "xb")
    if event in CHANGES or is_write:
        number -= 1
        if number < 0:
            os._exit(9)

best = BestCheckpoints(folder, Criterion(keep=keep, metric="loss", mode="min"))
sys.addaudithook(count)
for step, loss in losses:
    best.offer(f"{folder}/model.ckpt-{step}", {"loss": loss})
"""
HEADER = b"\x08\x01\x1a\x02\x08\x01"  # of a checkpoint with one shard, without values
ANEW = "a step that was trained anew"
# Losses of the steps that are offered first, then those while it is killed.
CASES = {
    "the first": ([], [(1, 1.0)]),
    "a better one": ([(1, 1.0), (2, 2.0)], [(3, 0.5)]),
    "one that is evaluated again": ([(1, 1.0), (2, 2.0)], [(1, 1.0)]),
    ANEW: ([(1, 1.0), (2, 2.0)], [(1, 0.5)]),
}


def make(folder, step, values=b"first"):
    (folder / f"model.ckpt-{step}.data-00000-of-00001").write_bytes(values)
    index = table([(b"", HEADER), (values, b"")])
    (folder / f"model.ckpt-{step}.index").write_bytes(index)


def is_of_one_save(checkpoint):
    data, index = (Path(path).read_bytes() for path in checkpoint.files)
    return data in dict(read_table(index))


def offer(folder, losses, keep):
    best = BestCheckpoints(str(folder), Criterion(keep=keep, metric="loss", mode="min"))
    for step, loss in losses:
        best.offer(str(folder / f"model.ckpt-{step}"), {"loss": loss})


def killed_at_each_change(tmp_path, first, then, anew, keep):
    """Return a folder for each change, in which the process was killed before it."""
    number = 0
    while True:
        folder = tmp_path / str(number)
        folder.mkdir()
        for step in (1, 2, 3, 4):
            make(folder, step)
        offer(folder, first, keep)
        for step in anew:
            Checkpoint.at(str(folder / f"model.ckpt-{step}")).delete()
            make(folder, step, b"anew")
        before = read_state(folder / "best") if first else None
        given = json.dumps([str(folder), number, then, keep])
        status = subprocess.run([sys.executable, "-c", OFFER, given], timeout=60)
        assert status.returncode in (0, 9)
        yield folder, before
        if not status.returncode:
            assert number >= 3
            return
        number += 1


@pytest.mark.parametrize("case", CASES)
def test_the_best_can_be_used_and_the_next_evaluation_tidies_up(tmp_path, case):
    first, then = CASES[case]
    # Its files have the names of the old ones, and take their place.
    anew = {step for step, _ in then} if case == ANEW else set()
    others = [loss for _, loss in first] or [9.0]
    for folder, before in killed_at_each_change(tmp_path, first, then, anew, 2):
        best = folder / "best"
        if before is not None:
            state = read_state(best)
            named = {Checkpoint.at(path) for path in state.paths}
            assert len(named) >= len(before.paths) - len(anew)
            assert [each.problem() for each in named] == [None] * len(named)
            assert all(map(is_of_one_save, named))
        offer(folder, [(4, 9.0)], keep=1)
        state = read_state(best)
        [kept] = checkpoints_in(best)
        assert (state.latest, state.paths) == (kept.prefix, (kept.prefix,))
        assert kept.problem() is None and is_of_one_save(kept)
        # The killed one may not have been kept yet: then the best is one before it.
        losses = [loss for step, loss in [*first, *then, (4, 9.0)] if step == kept.step]
        assert min(losses) <= min(others)
        noted = json.loads((best / "metrics.json").read_text())
        # What is noted is of the files that are there.
        is_new = any(Path(path).read_bytes() == b"anew" for path in kept.files)
        loss = losses[-1] if is_new else losses[0]
        assert noted == {f"model.ckpt-{kept.step}": {"loss": loss}}
        names = [*map(os.path.basename, kept.files), "checkpoint", "metrics.json"]
        assert sorted(os.listdir(best)) == sorted(names)


@pytest.mark.parametrize("keep", [1, 3])
def test_metrics_are_always_of_the_files_that_are_there(tmp_path, keep):
    first, then = [(1, 1.0), (2, 2.0)], [(3, 1.5), (1, 0.5)]
    for folder, _ in killed_at_each_change(tmp_path, first, then, {1}, keep):
        offer(folder, [(4, 9.0)], keep)
        best = folder / "best"
        noted = json.loads((best / "metrics.json").read_text())
        there = {each.name: each for each in checkpoints_in(best)}
        assert there.keys() == noted.keys()
        assert len(there) == keep
        [data, _] = sorted(there["model.ckpt-1"].files)
        is_new = Path(data).read_bytes() == b"anew"
        assert noted["model.ckpt-1"] == {"loss": 0.5 if is_new else 1.0}
