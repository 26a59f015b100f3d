"""What `estimator-runtime checkpoints` says of a folder, and that it changes nothing."""

import contextlib
import json
import os
import re
import shutil
import socket

import pytest

from estimator_runtime.checkpoint import inventory
from estimator_runtime.checkpoint.checkpoint import Checkpoint
from estimator_runtime.checkpoint.store import locks
from estimator_runtime.checkpoint.store.state_file import State, read_state, write_state
from estimator_runtime.checkpoint.tensor_bundle import checksums
from estimator_runtime.cli import checkpoints
from estimator_runtime.cli.main import main

DATA = "model.ckpt-30.data-00000-of-00001"


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


def state_of(folder):
    """Return all of a folder that a change would show in."""
    return {
        str(path): (path.stat().st_mtime_ns, path.is_dir() or path.read_bytes())
        for path in folder.rglob("*")
    }


@pytest.fixture
def show(ckpt, capsys):
    """Return a function of options: (exit status, what is printed as JSON)."""

    def show(*options):
        before = state_of(ckpt)
        status = main(["checkpoints", str(ckpt), "--json", *options])
        assert state_of(ckpt) == before
        return status, json.loads(capsys.readouterr().out)

    return show


def states(shown):
    return [(each["step"], each["state"]) for each in shown["checkpoints"]]


@pytest.mark.parametrize("options", [[], ["--verify"]])
def test_good_checkpoints_are_listed_and_the_newest_is_what_a_restart_uses(
    show, ckpt, options
):
    status, shown = show(*options)
    assert status == 0
    assert states(shown) == [(10, "good"), (20, "good"), (30, "good")]
    assert shown["restart"] == f"{ckpt}/model.ckpt-30"
    assert (shown["model_dir"], shown["state_file"]) == (str(ckpt), None)
    sizes = [
        sum(path.stat().st_size for path in ckpt.glob(f"model.ckpt-{step}.*"))
        for step in (10, 20, 30)
    ]
    assert [each["bytes"] for each in shown["checkpoints"]] == sizes
    assert all(each["age_secs"] >= 0 for each in shown["checkpoints"])


def test_the_table_has_a_line_for_each_and_says_what_a_restart_does(ckpt, capsys):
    for step in (10, 20, 30):
        for path in ckpt.glob(f"model.ckpt-{step}.*"):
            path.write_bytes(path.read_bytes())
    (ckpt / DATA).write_bytes(b"half")
    assert main(["checkpoints", str(ckpt)]) == 1
    lines = capsys.readouterr().out.splitlines()
    rows = [re.split(r"  +", line.strip()) for line in lines[:4]]
    assert [(row[0], row[3]) for row in rows] == [
        ("step", "state"),
        ("10", "good"),
        ("20", "good; a restart goes on from here"),
        ("30", f"damaged: {DATA} has 4 bytes of 408"),
    ]
    bytes_ = [path.stat().st_size for path in ckpt.glob("model.ckpt-*")]
    graphs = [path.stat().st_size for path in ckpt.glob("*.meta")]
    assert lines[4:] == [
        f"in all {checkpoints.size(sum(bytes_))}, of which "
        f"{checkpoints.size(sum(graphs))} are graphs",
        "a restart would not go on from the newest, of step 30",
    ]


def test_a_flipped_bit_of_the_data_is_found_by_verify_only(show, ckpt):
    flip(ckpt / DATA, 100)
    assert show()[0] == 0
    status, shown = show("--verify")
    assert status == 1
    assert states(shown) == [(10, "good"), (20, "good"), (30, "damaged")]
    reason = f"{DATA} has a wrong checksum for 'weight'"
    assert shown["checkpoints"][2]["reason"] == reason
    assert shown["restart"] == f"{ckpt}/model.ckpt-20"


def test_an_older_checkpoint_that_the_user_has_named_is_not_the_newest(show, ckpt):
    old = str(ckpt / "model.ckpt-10")
    write_state(str(ckpt), State(latest=old, paths=(old,)))
    status, shown = show()
    assert (status, shown["restart"]) == (1, old)
    assert states(shown) == [(10, "good"), (20, "good"), (30, "good")]


def test_a_checkpoint_that_is_named_but_gone_is_damaged(show, ckpt):
    for path in ckpt.glob("model.ckpt-30.*"):
        path.unlink()
    status, shown = show()
    assert (status, states(shown)[-1]) == (1, (30, "damaged"))
    assert shown["checkpoints"][-1]["reason"] == "its .index file is missing"


def test_data_without_an_index_is_an_orphan_that_no_restart_looks_at(show, ckpt):
    (ckpt / "model.ckpt-40.data-00000-of-00001").write_bytes(b"half")
    status, shown = show()
    assert (status, states(shown)[-1]) == (0, (40, "orphan"))
    assert shown["restart"] == f"{ckpt}/model.ckpt-30"


def test_a_save_that_is_under_way_is_temporary(show, ckpt):
    own = f".model.ckpt-40.saving-{os.getppid()}-{socket.gethostname()}"
    for name in (own, "model.ckpt-41_temp"):
        (ckpt / name).mkdir()
        (ckpt / name / "part-00000-of-00001.index").write_bytes(b"half")
    status, shown = show()
    assert status == 0
    assert states(shown)[3:] == [(40, "temporary"), (41, "temporary")]
    found = shown["checkpoints"][3:]
    assert [(each["reason"], each["bytes"]) for each in found] == [
        ("being written", 4),
        ("being written", 4),
    ]


def training(folder, new, keep):
    """Save one more, as a training does, and let go of what is not among the newest."""
    for path in folder.glob("model.ckpt-30.*"):
        shutil.copy(path, folder / path.name.replace("-30", f"-{new}", 1))
    state = read_state(str(folder))
    paths = (*state.paths, f"{folder}/model.ckpt-{new}")
    with contextlib.ExitStack() as unread:
        late = [
            path
            for path in paths[:-keep]
            if not unread.enter_context(locks.deleting(path))
        ]
        kept = (*late, *paths[-keep:])
        write_state(str(folder), State(latest=paths[-1], paths=kept))
        for path in set(paths) - set(kept):
            Checkpoint.at(path).delete()


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_a_training_may_save_and_delete_while_all_is_verified(ckpt, keep):
    saved = iter(range(31, 40))

    def problem(prefix):
        training(ckpt, next(saved), keep)
        return checksums.problem(prefix)

    found = inventory.take(str(ckpt), problem)
    assert found.restart.path == f"{ckpt}/model.ckpt-30"
    assert found.is_sound
    assert {each.state for each in found.entries} == {"good"}
    assert read_state(str(ckpt)).latest != f"{ckpt}/model.ckpt-30"
    # It was held for as long as it was looked at.
    assert Checkpoint.at(f"{ckpt}/model.ckpt-30").problem() is None


def test_checkpoints_of_another_folder_are_not_shown_where_there_is_a_copy(
    show, ckpt, tmp_path
):
    paths = tuple(f"{tmp_path}/old/model.ckpt-{step}" for step in (10, 20, 30))
    shutil.copytree(ckpt, tmp_path / "old")
    write_state(str(ckpt), State(latest=paths[-1], paths=paths), relative=False)
    status, shown = show()
    assert (status, shown["restart"]) == (0, f"{ckpt}/model.ckpt-30")
    assert [each["path"] for each in shown["checkpoints"]] == [
        f"{ckpt}/model.ckpt-{step}" for step in (10, 20, 30)
    ]
    assert shown["state_file"] == (
        f"the state file is that of another folder, {tmp_path}/old"
    )


def test_what_lies_beside_the_checkpoints_of_a_training_is_not_the_newest(show, ckpt):
    for path in ckpt.glob("model.ckpt-10.*"):
        copy = path.name.replace("model.ckpt-10", "bert.ckpt-1000000")
        shutil.copy(path, ckpt / copy)
    (ckpt / "corpus-99999.index").write_text("words")
    status, shown = show()
    assert (status, shown["restart"]) == (0, f"{ckpt}/model.ckpt-30")
    assert states(shown) == [
        (10, "good"),
        (20, "good"),
        (30, "good"),
        (1000000, "good"),
    ]


def test_no_good_checkpoint_is_status_1_and_said(ckpt, capsys):
    for path in ckpt.glob("*.data-*"):
        path.unlink()
    assert main(["checkpoints", str(ckpt)]) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "no checkpoint can be used: a restart would stop with an error"


@pytest.mark.parametrize(
    "make, line",
    [
        (lambda path: None, "{!r} does not exist; give the model_dir of a training"),
        (
            lambda path: path.write_text(""),
            "{!r} is not a folder; give the model_dir of a training",
        ),
        (
            lambda path: path.mkdir(),
            "{!r} is empty: no training has saved a checkpoint there; is it the "
            "model_dir?",
        ),
        (
            lambda path: (path.mkdir(), (path / "notes-1.txt").write_text("")),
            "{!r} has no checkpoints, but other files; is it the model_dir?",
        ),
    ],
    ids=["missing", "a file", "empty", "other files"],
)
def test_a_folder_without_checkpoints_is_one_line_and_status_1(
    tmp_path, capsys, make, line
):
    make(tmp_path / "model")
    assert main(["checkpoints", str(tmp_path / "model")]) == 1
    error = line.format(str(tmp_path / "model"))
    assert capsys.readouterr() == ("", f"estimator-runtime: error: {error}\n")


def test_a_folder_of_remote_storage_is_one_line_and_status_1(capsys):
    assert main(["checkpoints", "gs://bucket/model"]) == 1
    assert capsys.readouterr() == (
        "",
        "estimator-runtime: error: 'gs://bucket/model' is not on a file system of this "
        "machine; give a folder that it is mounted at, or copied to\n",
    )
