"""Commands in a folder in which anybody may have left a json.py: none of it is run.

The folder has a module for each name of the standard library, and for each package that
the runtime uses; importing one leaves a mark. The commands run in it as their current
folder, through the script that pip makes of a console entry point.
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

import estimator_runtime

_ROOT = str(pathlib.Path(estimator_runtime.__file__).parents[1])
_TRAIN = pathlib.Path(__file__).parents[2] / "launch" / "programs" / "train.py"
_ENTRY_POINT = (
    "import sys\nfrom estimator_runtime.cli.main import main\nsys.exit(main())\n"
)
_PACKAGES = (
    *("absl", "crc32c", "google", "grpc", "keras", "numpy", "ray", "tensorboard"),
    *("tensorflow", "tensorflow_estimator", "tf_keras", "tqdm", "wrapt"),
)
_TIMEOUT_SECS = 240


def call(command, folder):
    """Run a command; return its status and its output."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder,
        env={**inherited, "PYTHONPATH": _ROOT, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT_SECS,
    )
    return done.returncode, done.stdout


@pytest.fixture
def command(tmp_path):
    """The start of a command line of ours."""
    script = tmp_path / "bin" / "estimator-runtime"
    script.parent.mkdir()
    script.write_text(_ENTRY_POINT)
    return [sys.executable, script]


class HostileFolder:
    """A folder whose modules leave a mark when they are imported."""

    def __init__(self, folder, names):
        self.path, self._marks = folder / "hostile", folder / "marks"
        self.path.mkdir()
        for name in names:
            text = f"open({str(self._marks)!r}, 'a').write(__name__ + '\\n')\n"
            (self.path / f"{name}.py").write_text(text)

    @property
    def imported(self):
        """The names of its modules that were imported."""
        return set(self._marks.read_text().split()) if self._marks.exists() else set()


@pytest.fixture
def hostile(tmp_path):
    ours = ("estimator_runtime", "sitecustomize", "usercustomize")
    return HostileFolder(tmp_path, {*sys.stdlib_module_names, *_PACKAGES, *ours})


def test_plain_python_imports_what_lies_in_such_a_folder(hostile):
    call([sys.executable, "-c", "import json, tensorflow"], hostile.path)
    assert hostile.imported == {"json", "tensorflow"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--version"],
        ["status"],
        ["doctor"],
        ["checkpoints", "."],
        ["render", "--backend", "kubernetes", "--image", "i", "--workers", "1", "t.py"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_imports_nothing_from_the_current_folder(hostile, command, arguments):
    status, output = call([*command, *arguments], hostile.path)
    # There is no checkpoint here to go on from, which is a status of 1.
    expected = 1 if arguments[0] == "checkpoints" else 0
    assert (hostile.imported, status) == (set(), expected), output


@pytest.mark.parametrize(
    ("options", "strategy"),
    [
        ([], "none"),
        (["--workers", "1", "--ps", "1"], "none"),
        (["--workers", "1", "--ps", "1", "--cold"], "none"),
        (["--workers", "1"], "mwms"),
        (["--tensorboard=0"], "none"),
        (["--workers", "0", "--tensorboard=0"], "none"),
    ],
    ids=["one process", "warm", "cold", "gang", "TensorBoard", "TensorBoard of a job"],
)
def test_a_training_imports_nothing_from_the_current_folder(
    hostile, command, tmp_path, options, strategy
):
    program = [_TRAIN, "--model_dir", tmp_path / "model", "--strategy", strategy]
    status, output = call(
        [*command, "run", *options, *program, "--steps", "20"], hostile.path
    )
    assert (hostile.imported, status) == (set(), 0), output
    # Two trainers with a ps may end a step or two later.
    assert list((tmp_path / "model").glob("model.ckpt-2?.index")), output


@pytest.mark.parametrize("program", ["../scripts/show.py", "-m show"])
@pytest.mark.parametrize("options", ["", "--workers 0", "--workers 0 --cold"])
def test_the_program_has_the_search_path_that_plain_python_gives_it(
    tmp_path, command, program, options
):
    # A TensorFlow 2.15 may add setuptools' own folder, in the fork server too.
    text = "import json, sys, tensorflow\nprint('path', json.dumps(sys.path))\n"
    for folder in ("here", "scripts"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "show.py").write_text(text)
    paths = []
    for start in ([sys.executable], [*command, "run", *options.split()]):
        status, output = call([*start, *program.split()], tmp_path / "here")
        assert status == 0, output
        paths.append(json.loads(re.search(r"path (\[.*\])$", output, re.M)[1]))
    plain, ours = paths
    first = "here" if program == "-m show" else "scripts"
    assert (ours, ours[0]) == (plain, str(tmp_path / first))
