"""Jobs that a Ray cluster cannot run: refused in one line before anything starts."""

import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import estimator_runtime

_PROGRAM = Path(__file__).parents[1] / "programs" / "train.py"


def _error(job, status=1):
    """Give the one line that a job which is refused at once has written."""
    assert job.end(90) == status, job.text
    lines = [line for line in job.text.splitlines() if line]
    assert len(lines) == 1, job.text
    return lines[0].removeprefix("estimator-runtime: error: ")


def test_ray_that_is_not_installed_is_one_line_that_names_the_extra(launch, tmp_path):
    (tmp_path / "train.py").touch()
    (tmp_path / "ray.py").write_text("raise ImportError('there is no Ray here')\n")
    job = launch("--backend", "ray", "train.py", PYTHONPATH=_path_after(tmp_path))
    assert _error(job) == (
        "the Ray back end needs Ray, which cannot be imported (there is no Ray here); "
        "install it with: pip install 'estimator-runtime[ray]'"
    )


def test_an_address_where_no_cluster_is_is_one_line(launch, tmp_path, free_addresses):
    (tmp_path / "train.py").touch()
    address = free_addresses(1)[0].replace("127.0.0.1", "127.0.0.2")
    job = launch("--backend", "ray", "--ray-address", address, "train.py")
    assert re.fullmatch(
        rf"no Ray cluster answers at '{address}': \[Errno 111\] Connection refused; is it "
        r"started, with `ray start --head`, and reachable from here\?",
        _error(job),
    )
    for address in ("head", "ray://127.0.0.1:10001"):
        job = launch("--backend", "ray", "--ray-address", address, "train.py")
        assert _error(job) == (
            f"Ray address {address!r} is no address of a head node; give its host:port, "
            "such as 10.0.0.1:6379, or auto"
        )


def test_options_of_the_other_back_end_are_refused(launch, tmp_path):
    (tmp_path / "train.py").touch()
    job = launch("--workers", "1", "--cpus-per-worker", "2", "train.py")
    assert _error(job, 2) == (
        "--cpus-per-worker is for --backend ray; add that, or leave out "
        "--cpus-per-worker"
    )
    job = launch("--backend", "ray", "--cold", "train.py")
    assert _error(job, 2) == (
        "--cold is for a cluster on this machine; leave it out, or --backend ray"
    )
    (tmp_path / "folder").mkdir()
    job = launch("--backend", "ray", "--working-dir", "folder", "train.py")
    assert _error(job, 2) == (
        "script 'train.py' is not in --working-dir 'folder', which is copied to the "
        "nodes; name a folder that has it"
    )


@pytest.mark.parametrize(
    "options, problem",
    [
        (
            ["--cpus-per-worker", "3"],
            r"one task takes 3 CPU, and no node has that: 127.0.0.2 has 1 CPU, 127.0.0.3 "
            r"has 2 CPU, 127.0.0.4 has 2 CPU",
        ),
        (
            ["--gpus-per-worker", "99"],
            r"one task takes 1 CPU and 99 GPU, and no node has that: .*",
        ),
        (
            ["--workers", "4", "--ps", "1"],
            r"6 tasks take 6 CPU, and the whole cluster has 5 CPU: .*",
        ),
    ],
)
def test_what_the_cluster_can_never_have_is_refused_at_once(
    launch, cluster, tmp_path, options, problem
):
    (tmp_path / "train.py").touch()
    where = ("--backend", "ray", "--ray-address", cluster.address)
    assert re.fullmatch(
        rf"the cluster can never run this job: {problem}; start fewer tasks, or, where "
        r"nodes are about to join, set a --placement-timeout",
        _error(launch(*where, *options, "train.py")),
    )


def test_what_is_not_free_in_time_is_named(launch, cluster, tmp_path):
    # It fits in the sum of the nodes, and in no way of filling each.
    (tmp_path / "train.py").touch()
    where = ("--backend", "ray", "--ray-address", cluster.address)
    options = ("--workers", "2", "--cpus-per-worker", "1.5", "--placement-timeout", "1")
    assert re.fullmatch(
        r"there was no room for the job within 1 s: the tasks take 1.5 CPU, 1.5 CPU, 1.5 "
        r"CPU; free are \S+ CPU and 0 GPU in all; start fewer tasks, or wait "
        r"longer with --placement-timeout",
        _error(launch(*where, *options, "train.py")),
    )


def test_a_job_that_waits_for_room_says_so_and_can_be_stopped(
    launch, cluster, tmp_path
):
    (tmp_path / "train.py").touch()
    where = ("--backend", "ray", "--ray-address", cluster.address)
    options = ("--workers", "2", "--cpus-per-worker", "1.5")
    job = launch(*where, *options, "train.py")
    job.wait_for(r"^launcher \| waiting for room: the tasks take 1.5 CPU, 1.5 CPU, ")
    job.process.send_signal(signal.SIGINT)
    assert job.end(30) == 130
    assert job.text.endswith("estimator-runtime: stopped by SIGINT before the start\n")


def test_a_node_with_another_version_is_named(launch, cluster, tmp_path):
    (tmp_path / "train.py").touch()
    package = Path(estimator_runtime.__file__).parent
    shutil.copytree(package, tmp_path / "old" / "estimator_runtime")
    version = tmp_path / "old" / "estimator_runtime" / "_version.py"
    version.write_text('__version__ = "0.0.1"\n')
    # The only node with so many GPUs, as far as Ray knows.
    node = cluster.add(
        num_gpus=2,
        env_vars={"PYTHONPATH": str(tmp_path / "old")},
    )
    where = ("--backend", "ray", "--ray-address", cluster.address)
    assert _error(launch(*where, "--gpus-per-worker", "2", "train.py")) == (
        f"node {node} has estimator_runtime 0.0.1, and this machine "
        f"{estimator_runtime.__version__}; install the same versions on all nodes"
    )


def test_a_node_that_sees_another_model_dir_is_named(
    launch, cluster, tmp_path, node_apart
):
    (tmp_path / "model").mkdir()
    node = node_apart(tmp_path / "model")
    where = ("--backend", "ray", "--ray-address", cluster.address)
    job = launch(*where, "--gpus-per-worker", "4", _PROGRAM, "--step_secs", "0.5")
    assert job.end(90) == 1, job.text
    assert (
        "estimator-runtime: the machine of the launcher does not see what node "
        f"{node} writes to model_dir '{tmp_path}/model'; use a folder that all of them "
        "share\n"
    ) in job.text


def test_help_and_local_jobs_do_not_import_ray():
    program = (
        "import sys, estimator_runtime.cli, estimator_runtime.launch.local as l\n"
        "import estimator_runtime.launching, estimator_runtime.launch_options\n"
        "print({'ray', 'tensorflow'} & set(sys.modules))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert answer.stdout == "set()\n", answer.stderr


def _path_after(folder):
    import os

    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
