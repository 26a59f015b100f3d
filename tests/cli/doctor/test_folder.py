"""The model directory, in real folders."""

import json
import os

import pytest

from estimator_runtime.cli.doctor.finding import Subject
from estimator_runtime.cli.doctor.report import examine as examine_all


def examine(given, tf_config="{}"):
    subject = Subject(environ={"TF_CONFIG": tf_config}, model_dir=given)
    return [
        (about, each.state, each.text)
        for about, each in examine_all(subject, ("model dir", "checkpoints"))
    ]


def test_without_a_folder_it_says_how_to_name_one():
    assert examine(None) == [
        ("model dir", "note", "not looked at; name it with --model-dir")
    ]


def test_that_of_tf_config_is_looked_at_and_another_one_is_a_problem(tmp_path):
    config = json.dumps({"model_dir": str(tmp_path)})
    [(about, state, text), checkpoints] = examine(None, config)
    assert (about, state) == ("model dir", "ok")
    assert text.startswith(f"{tmp_path} can be written, ") and text.endswith("B free")
    assert checkpoints == ("checkpoints", "ok", "none yet")
    [(about, state, text)] = examine("/elsewhere", config)
    assert (about, state) == ("model dir", "problem")
    assert text.endswith("Leave one of them out")


def test_one_that_is_not_there_yet_is_tried_where_it_would_be_made(tmp_path):
    [(about, state, text)] = examine(str(tmp_path / "new" / "model"))
    assert (about, state) == ("model dir", "ok")
    assert text.startswith(f"{tmp_path / 'new' / 'model'} can be made, ")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "path, reason", [("file/model", "Not a directory"), ("/proc/model", None)]
)
def test_one_that_cannot_be_written_is_a_problem(tmp_path, path, reason):
    (tmp_path / "file").touch()
    [(about, state, text)] = examine(str(tmp_path / path))
    assert (about, state) == ("model dir", "problem")
    assert text.startswith(f"{tmp_path / path} cannot be written: {reason or ''}")
    assert text.endswith("write there, or choose another")


def test_a_folder_of_another_file_system_is_not_looked_at():
    [(about, state, _)] = examine("gs://bucket/model")
    assert (about, state) == ("model dir", "note")


def test_checkpoints_are_told_by_what_a_restart_makes_of_them(tmp_path):
    prefix = tmp_path / "model.ckpt-7"
    prefix.with_suffix(".ckpt-7.data-00000-of-00001").write_bytes(b"no checkpoint")
    prefix.with_suffix(".ckpt-7.index").write_bytes(b"no index")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    [_, (about, state, text)] = examine(str(tmp_path))
    assert (about, state) == ("checkpoints", "problem")
    assert text == (
        "a restart would stop with an error; see: estimator-runtime checkpoints "
        f"{tmp_path}"
    )


def test_a_disk_without_space_for_the_next_checkpoint_is_a_problem(
    tmp_path, monkeypatch
):
    prefix = tmp_path / "model.ckpt-7"
    prefix.with_suffix(".ckpt-7.data-00000-of-00001").write_bytes(b"x" * 5000)
    prefix.with_suffix(".ckpt-7.index").write_bytes(b"no index")
    usage = os.statvfs_result((4096, 4096, 100, 1, 1, 100, 50, 50, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: usage)
    [(about, state, text), _] = examine(str(tmp_path))
    assert (about, state) == ("model dir", "problem")
    assert text == (
        f"{tmp_path} has 4.1 kB free, less than the next checkpoint needs (5.0 kB); "
        "make space, or choose another disk"
    )
