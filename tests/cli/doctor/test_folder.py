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
        for about, each in examine_all(subject, ["model dir"])
    ]


def test_that_of_tf_config_is_looked_at_and_another_one_is_a_problem(tmp_path):
    config = json.dumps({"model_dir": str(tmp_path)})
    [(about, state, text)] = examine(None, config)
    assert (about, state) == ("model dir", "ok")
    assert text.startswith(f"{tmp_path} can be written, ") and text.endswith("B free")
    [(about, state, text)] = examine("/elsewhere", config)
    assert (about, state) == ("model dir", "problem")
    assert text.endswith("Leave one of them out")


def test_one_that_is_not_there_yet_is_tried_where_it_would_be_made(tmp_path):
    [(about, state, text)] = examine(str(tmp_path / "new" / "model"))
    assert (about, state) == ("model dir", "ok")
    assert text.startswith(f"{tmp_path / 'new' / 'model'} can be made, ")
    assert os.listdir(tmp_path) == []


def test_one_of_the_command_line_is_looked_at_beside_an_invalid_tf_config(tmp_path):
    [(about, state, _)] = examine(str(tmp_path), "no JSON")
    assert (about, state) == ("model dir", "ok")


@pytest.mark.parametrize(
    "path, reason", [("file/model", "Not a directory"), ("/proc/model", None)]
)
def test_one_that_cannot_be_written_is_a_problem(tmp_path, path, reason):
    (tmp_path / "file").touch()
    [(about, state, text)] = examine(str(tmp_path / path))
    assert (about, state) == ("model dir", "problem")
    assert text.startswith(f"{tmp_path / path} cannot be written: {reason or ''}")
    assert text.endswith("write there, or choose another")
