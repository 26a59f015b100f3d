"""Estimators trained by a real Ray cluster of three nodes, to good and bad ends."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

pytestmark = pytest.mark.long("nodes of a Ray cluster start the tasks of whole jobs")

_PROGRAM = Path(__file__).parents[1] / "programs" / "train.py"
_PS = ("--workers", "1", "--ps", "1")
_MWMS = ("--workers", "1")


def test_a_job_with_ps_and_evaluator_trains_to_its_end(train, tmp_path, saved_step):
    job = train((*_PS, "--evaluator"))
    assert job.end(120) == 0, job.text
    assert saved_step() >= 100
    assert list(tmp_path.glob("model/export/last/*/saved_model.pb"))
    assert list(tmp_path.glob("model/eval/events.*"))
    nodes = {job.node(task) for task in ("chief", "worker 0", "ps 0", "evaluator")}
    assert nodes == {"127.0.0.2", "127.0.0.3", "127.0.0.4"}  # spread
    logs = sorted(path.name for path in tmp_path.glob("model/logs/*"))
    assert logs == ["chief-0.log", "evaluator-0.log", "ps-0.log", "worker-0.log"]
    assert "done\n" in (tmp_path / "model" / "logs" / "chief-0.log").read_text()


def test_a_gang_trains_to_its_end(train, saved_step):
    job = train((*_MWMS, "--placement", "pack"), "--strategy", "mwms")
    assert job.end(120) == 0, job.text
    assert saved_step() == 100
    assert job.node("chief") == job.node("worker 0")  # packed


def test_a_folder_is_copied_to_the_nodes_and_its_script_runs_there(
    train, tmp_path, saved_step
):
    project = tmp_path / "project"
    project.mkdir()
    shutil.copy(_PROGRAM, project / "copied.py")
    job = train(
        ("--workers", "0", "--working-dir", "project"),
        *("--model_dir", tmp_path / "model"),
        program=project / "copied.py",
    )
    assert job.end(120) == 0, job.text
    assert saved_step() == 100


def test_a_model_dir_in_the_copy_of_the_folder_is_refused(train, tmp_path):
    shutil.copy(_PROGRAM, tmp_path / "copied.py")
    job = train(("--workers", "0", "--working-dir", "."), program="copied.py")
    assert job.end(120) == 1
    assert re.search(
        r"^estimator-runtime: model_dir '\S+/model' is in the copy of --working-dir "
        r"that a node has; give the path of a folder that all nodes share$",
        job.text,
        re.MULTILINE,
    )


def test_a_failure_for_good_names_the_task_and_its_traceback(train, tmp_path):
    (tmp_path / "fails.py").write_text(
        "import os\n"
        "names = 'TF_LABEL CUDA_VISIBLE_DEVICES ESTIMATOR_RUNTIME_STOP_GRACE_SECS'\n"
        "raise KeyError(*map(os.environ.get, names.split()))\n"
    )
    options = ("--workers", "0", "--max-restarts", "0", "--grace", "5")
    job = train(options, program="fails.py", TF_LABEL="goes along")
    assert job.end(120) == 1
    assert (
        "estimator-runtime: chief ended with KeyError (exit status 1): no restarts\n"
        "  Traceback (most recent call last):\n"
        f'    File "{tmp_path}/fails.py", line 3, in <module>\n'
    ) in job.text
    # It has no GPU, as it takes none.
    assert "\n  KeyError: ('goes along', '', '5')\nlog: " in job.text


@pytest.mark.parametrize(
    "number, status",
    [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)],
    ids=["stopped", "killed"],
)
def test_a_launcher_that_is_stopped_or_killed_leaves_nothing(
    train, saved_step, number, status
):
    job = train(_PS, "--steps", "100000", "--step_secs", "0.02")
    # A worker may train before the chief has a session to save.
    for task in ("chief", "worker 0"):
        job.wait_for(rf"^{task} *\| step \d+$", timeout_secs=90)
    os.kill(job.process.pid, number)
    assert job.end(60) == status
    if number == signal.SIGINT:
        last = max(job.steps() + job.steps("worker 0"))
        # Each prints a step after it, which two trainers may not have done in time.
        assert last <= saved_step() <= last + 5
    # The rest is the fixture's: all gone.
