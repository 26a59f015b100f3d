"""The command line: what it refuses, in one line, and what it answers."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import estimator_runtime
from estimator_runtime.cli.main import main

TF_CONFIG_OF_WORKER = json.dumps(
    {
        "cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]},
        "task": {"type": "worker", "index": 1},
    }
)
OURS = [sys.executable, "-m", "estimator_runtime"]


def run(arguments, folder, *, within=(), stdin=None, pass_fds=(), **variables):
    root = pathlib.Path(estimator_runtime.__file__).parents[1]
    environment = {
        name: value
        for name, value in os.environ.items()
        if name != "TF_CONFIG" and not name.startswith("PYTHON")
    }
    done = subprocess.run(
        [*within, *OURS, *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(root), **variables},
        stdin=stdin,
        pass_fds=pass_fds,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, done.stdout, done.stderr


def refusal(status, line):
    return status, "", f"estimator-runtime: error: {line}\n"


@pytest.fixture
def folder(tmp_path):
    files = {
        "train.py": "print('ran')",
        "package/__init__.py": "",
        "package/train.py": "print('ran')",
        "runnable/__init__.py": "",
        "runnable/__main__.py": "print('ran')",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            [],
            "the following arguments are required: COMMAND; see 'estimator-runtime --help'",
        ),
        (
            ["run", "--steps", "train.py"],
            "unknown option '--steps'; put options of the script after it, as in "
            "'SCRIPT --steps'; 'estimator-runtime run --help' lists ours",
        ),
        (
            ["run", "package.train"],
            "script 'package.train' does not exist; relative paths start from "
            "'{folder}', and a module needs -m before its name",
        ),
        (
            ["run", "runnable"],
            "script 'runnable' is a folder; name a script in it, or run a package by "
            "its name, after -m",
        ),
        (
            ["run", "-m", "package.nothing"],
            "No module named package.nothing; "
            "is its package installed, or in a folder below '{folder}'?",
        ),
        (
            ["run", "-m", "package"],
            "No module named package.__main__; 'package' is a package and cannot be "
            "directly executed; is its package installed, or in a folder below "
            "'{folder}'?",
        ),
        (
            ["run", "--tf1-resource-variables", "train.py"],
            "--tf1-resource-variables is for --tf1; add that, or leave out "
            "--tf1-resource-variables",
        ),
        (
            ["run", "--wokers", "2", "train.py"],
            "unknown option '--wokers'; did you mean --workers?",
        ),
        (
            ["run", "--steps_per_run=4", "train.py"],
            "unknown option '--steps_per_run=4'; did you mean --steps-per-run?",
        ),
        (
            ["--workers=2", "run", "x.py"],
            "option '--workers=2' stands before the command; write the command first, as "
            "in: estimator-runtime run --workers=2 ...",
        ),
        (
            ["train.py", "--flag"],
            "'train.py' is not a command; to run it: estimator-runtime run train.py",
        ),
        (["runn", "train.py"], "'runn' is not a command; did you mean run?"),
    ],
)
def test_a_command_line_that_cannot_work_is_one_line_and_status_2(
    arguments, line, folder
):
    assert run(arguments, folder) == refusal(2, line.format(folder=folder))


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["run", "--help"],
        ["render", "--backend=kubernetes", "--image=i", "--workers=1", "x.py"],
    ],
)
def test_a_reader_that_has_enough_of_the_text_ends_no_command_with_a_traceback(
    arguments, unbuffered, tmp_path
):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stdout:
        done = subprocess.run(
            [sys.executable, "-m", "estimator_runtime", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("arguments", [["--version"], ["status"]])
def test_a_text_that_cannot_be_written_is_one_line(arguments, tmp_path):
    with open("/dev/full", "w") as stdout:
        done = subprocess.run(
            [sys.executable, "-m", "estimator_runtime", *arguments],
            cwd=tmp_path,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    line = (
        "standard output cannot be written (No space left on device); send it to where "
        "there is room"
    )
    assert done.stderr == f"estimator-runtime: error: {line}\n"
    assert done.returncode == 1


def test_what_the_encoding_of_standard_output_lacks_is_escaped(folder):
    (folder / "model\udcff").mkdir()
    arguments = ["doctor", "--model-dir", "model\udcff"]
    status, output, error = run(arguments, folder, PYTHONIOENCODING="utf-8:strict")
    assert (status, error) == (0, "")
    assert f"{folder}/model\\udcff can be written" in output


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "a = 1\n\n  b = = 2  # two\n",
            "train.py:3: unexpected indent: b = = 2  # two",
        ),
        ("return\n", "train.py:1: 'return' outside function: return"),
    ],
)
def test_a_script_that_fails_to_parse_is_one_line_and_status_1(text, line, tmp_path):
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    status, output, error = run(["run", "train.py"], tmp_path, PYTHONIOENCODING="utf-8")
    assert (status, output, error.count("\n")) == (1, "", 1)
    assert error == f"estimator-runtime: error: {line}\n"


@pytest.mark.parametrize("content", [b"print(1)\0", b"'\xff'", b"(" * 10_000])
def test_a_file_that_is_no_python_is_one_line_and_status_1(content, tmp_path):
    (tmp_path / "model.bin").write_bytes(content)
    status, output, error = run(["run", "model.bin"], tmp_path)
    assert (status, output, error.count("\n")) == (1, "", 1)
    assert error.startswith("estimator-runtime: error: model.bin:")


def test_a_notebook_is_refused_with_how_to_make_a_script_of_it(folder):
    (folder / "train.ipynb").write_text('{"cells": []}')  # Python, too
    assert run(["run", "train.ipynb"], folder) == refusal(
        2,
        "script 'train.ipynb' is a notebook; make a script of it, and run that: "
        "jupyter nbconvert --to script train.ipynb",
    )


@pytest.mark.parametrize(
    ("command", "is_pipe"),
    [
        (["run", "--workers", "1"], True),
        (["run", "--ps", "1"], False),
        (["doctor"], True),
    ],
)
def test_a_script_that_only_one_process_can_read_once_is_refused_by_others(
    folder, command, is_pipe
):
    stdin = os.open(folder / "train.py", os.O_RDONLY)
    if is_pipe:
        os.close(stdin)
        stdin, writer = os.pipe()
        os.close(writer)
    told = run([*command, "/dev/stdin"], folder, stdin=stdin)
    os.close(stdin)
    assert told == refusal(
        2,
        "script '/dev/stdin' is standard input or a pipe, which only one process can "
        "read, once; write it to a file, and name that",
    )


def test_one_process_runs_a_script_from_a_pipe_whatever_its_options(folder):
    reader, writer = os.pipe()
    os.write(writer, b"import sys; print(sys.argv[1:])")
    os.close(writer)
    command = ["run", f"/dev/fd/{reader}", "--verbose"]
    status, out, error = run(command, folder, pass_fds=[reader])
    os.close(reader)
    assert (status, out) == (0, "['--verbose']\n"), error


@pytest.mark.parametrize("command", [["run", "/train.py"], ["checkpoints", "model"]])
def test_a_current_folder_that_was_deleted_is_named(tmp_path, command):
    gone = tmp_path / "gone"
    gone.mkdir()
    within = ["sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh"]
    assert run(command, gone, within=within) == refusal(
        1,
        "the current folder has been deleted; change to one that exists, such as: cd ~",
    )


@pytest.mark.parametrize("program", [["train.py"], ["-m", "package.train"]])
@pytest.mark.parametrize(
    ("cluster", "named"),
    [
        ('{"cluster":', "not JSON (Expecting value"),
        ('{"cluster": {"chief": ["h:http"]}}', "cluster['chief'][0] is 'h:http'"),
    ],
)
def test_a_bad_tf_config_is_one_line_before_anything_runs(
    folder, program, cluster, named
):
    status, output, error = run(["run", *program], folder, TF_CONFIG=cluster)
    assert (status, output, error.count("\n")) == (1, "", 1)
    assert error.startswith(f"estimator-runtime: error: TF_CONFIG: {named}")


def test_a_tensorflow_that_is_too_old_is_one_line_and_status_1(folder):
    # Package metadata is what the check reads; the first on the path counts.
    metadata = folder / "old" / "tensorflow-2.14.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: tensorflow\nVersion: 2.14.0\n")
    root = pathlib.Path(estimator_runtime.__file__).parents[1]
    path = f"{metadata.parents[1]}:{root}"
    status, output, error = run(["run", "train.py"], folder, PYTHONPATH=path)
    assert (status, output, error.count("\n")) == (1, "", 1)
    assert error.startswith("estimator-runtime: error: TensorFlow 2.14.0 is too old")


def test_two_dashes_may_stand_before_the_program(folder):
    assert run(["run", "--", "train.py"], folder) == (0, "ran\n", "")
    assert run(["run", "-m", "--", "package.train"], folder) == (0, "ran\n", "")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["run", "-h", "x"]]
)
def test_help_lists_the_exit_statuses(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 0
    assert "exit status:\n  0  success\n  1  " in capsys.readouterr().out


def test_the_command_line_needs_no_tensorflow(tmp_path):
    program = textwrap.dedent(
        """
        import sys
        from estimator_runtime.cli.main import main
        try:
            main(["run", "--help"])
        except SystemExit:
            print({"tensorflow", "numpy", "ray", "tf_keras"} & set(sys.modules))
        """
    )
    (tmp_path / "program.py").write_text(program)
    status, output, error = run(["run", "program.py"], tmp_path)
    assert (status, output.splitlines()[-1], error) == (0, "set()", "")


@pytest.mark.parametrize(
    ("flags", "given", "shown"),
    [
        ([], {}, {"PROGRESS": "auto"}),
        (["--steps-per-run", "7"], {}, {"STEPS_PER_RUN": "7"}),
        (["--loop", "stock"], {}, {"LOOP": "stock"}),
        (["--async-checkpoint"], {}, {"ASYNC_CHECKPOINT": "1"}),
        (["--checkpoint-overhead", "0.05"], {}, {"CHECKPOINT_OVERHEAD": "0.05"}),
        (["--progress", "bar"], {"PROGRESS": "none"}, {"PROGRESS": "bar"}),
        ([], {"VERBOSE": "1"}, {"VERBOSE": "1"}),
        (
            ["--keep-best", "3", "--best-metric", "auc", "--best-mode", "max"],
            {},
            {"KEEP_BEST": "3", "BEST_METRIC": "auc", "BEST_MODE": "max"},
        ),
    ],
)
def test_flags_reach_the_script_in_its_environment_and_win_over_it(
    tmp_path, flags, given, shown
):
    (tmp_path / "show.py").write_text(
        "import json, os, sys  # its own option: --steps-per-run\n"
        "print(json.dumps([dict(os.environ), sys.argv[1:]]))\n"
    )
    variables = {f"ESTIMATOR_RUNTIME_{name}": value for name, value in given.items()}
    arguments = ["run", *flags, "show.py", "--steps-per-run", "mine"]
    status, output, error = run(arguments, tmp_path, **variables)
    environ, own = json.loads(output)
    found = {name: environ.get(f"ESTIMATOR_RUNTIME_{name}") for name in shown}
    assert (status, error, own) == (0, "", ["--steps-per-run", "mine"])
    assert found == shown
    unset = {"STEPS_PER_RUN", "LOOP", "KEEP_BEST", "ASYNC_CHECKPOINT"} - set(shown)
    assert not any(f"ESTIMATOR_RUNTIME_{name}" in environ for name in unset)


@pytest.mark.parametrize(
    ("flag", "value", "shown"),
    [
        ("--steps-per-run", "0", "0; give a whole number of steps, 1 or more, or"),
        ("--checkpoint-overhead", "1", "1.0; give the fraction of the time that"),
        ("--workers", "-1", "'-1'; give a whole number, 0 or more"),
    ],
)
def test_a_value_that_a_flag_cannot_have_is_one_line_and_status_2(
    folder, flag, value, shown
):
    status, output, error = run(["run", f"{flag}={value}", "train.py"], folder)
    expected = f"estimator-runtime: error: argument {flag}: the value is {shown}"
    assert (status, output, error.count("\n")) == (2, "", 1)
    assert error.startswith(expected)


_HINT = (
    "estimator-runtime: the script was given '--workers', which stands after it; if it "
    "is for 'estimator-runtime run', put it before the script\n"
)
_ARGPARSE = "import argparse; argparse.ArgumentParser().parse_args()"


@pytest.mark.parametrize(
    ("text", "arguments", "status", "is_told"),
    [
        (_ARGPARSE, ["--workers", "2"], 2, True),
        (_ARGPARSE, ["--mine"], 2, False),
        ("import sys; print(sys.argv)", ["--workers=2"], 0, True),
        ("FLAGS = {'workers': 2}", ["--workers", "2"], 0, False),
        ("FLAGS = {'log_dir': 2}", ["--log-dir", "2"], 0, False),
    ],
)
def test_an_option_of_ours_that_the_script_does_not_name_is_said_to_stand_after_it(
    tmp_path, text, arguments, status, is_told
):
    (tmp_path / "train.py").write_text(text)
    got, _, errors = run(["run", "train.py", *arguments], tmp_path)
    assert got == status
    assert errors.startswith(_HINT) == is_told
    assert errors.endswith(_HINT) == is_told
    times = (
        1 if status == 0 else 2
    )  # the output of a program that fails hides the first
    assert errors.count("stands after it") == times * is_told


def test_each_line_of_one_process_may_be_an_object_of_json(folder):
    (folder / "train.py").write_text(
        "print('WARNING:tensorflow:careful')\n"
        "print('the start', end='', flush=True)\n"
        "1 / 0\n"
    )
    arguments = ["run", "--log-format", "json", "train.py"]
    status, *texts = run(arguments, folder, TF_CONFIG=TF_CONFIG_OF_WORKER)
    assert status == 1
    stdout, stderr = (list(map(json.loads, text.splitlines())) for text in texts)
    assert {line["task"] for line in (*stdout, *stderr)} == {"worker 1"}
    assert [(line["level"], line["message"]) for line in stdout] == [
        ("warning", "WARNING:tensorflow:careful"),
        ("info", "the start"),
    ]
    messages = [line["message"] for line in stderr]
    assert messages[0].startswith("Traceback")
    assert messages[-1] == "ZeroDivisionError: division by zero"
