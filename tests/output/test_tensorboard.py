"""`--tensorboard`: what the command line takes, and what it refuses at the door."""

import pytest

from estimator_runtime.cli import main
from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.output import tensorboard


@pytest.mark.parametrize(
    "arguments, port, program",
    [
        (["train.py"], None, ["train.py"]),
        (["--tensorboard", "train.py"], tensorboard.FIRST_FREE, ["train.py"]),
        (["--tensorboard=6007", "train.py"], 6007, ["train.py"]),
        (["--tensorboard", "--", "6007"], tensorboard.FIRST_FREE, ["6007"]),
        (["--tensorboard", "-m", "6007"], tensorboard.FIRST_FREE, ["6007"]),
        (["--tensorboard", "--workers", "2", "a.py"], tensorboard.FIRST_FREE, ["a.py"]),
        (["a.py", "--tensorboard", "log"], None, ["a.py", "--tensorboard", "log"]),
        (["--log-dir", "--tensorboard=1", "a.py"], None, None),
    ],
)
def test_the_port_may_be_left_out(arguments, port, program):
    if program is None:
        with pytest.raises(EstimatorRuntimeError, match="--log-dir"):
            main.parse(["run", *arguments])
        return
    options = main.parse(["run", *arguments])
    assert (options.tensorboard, options.program) == (port, program)


@pytest.mark.parametrize("port", ["65536", "http"])
def test_what_is_no_port_is_refused(port, run_script, tmp_path):
    (tmp_path / "train.py").write_text("print('ran')")
    done = run_script(f"--tensorboard={port}", "train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        f"estimator-runtime: error: argument --tensorboard: the value is '{port}'; give a "
        "port, 0 to 65535, or none; see 'estimator-runtime run --help'\n",
    )
