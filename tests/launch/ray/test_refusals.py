"""Jobs that a Ray cluster cannot run: refused in one line before anything starts."""

import re
import shutil
import signal
from pathlib import Path

import estimator_runtime


def _error(job, status=1):
    """Return the one line that a job which is refused has written."""
    assert job.end(90) == status, job.text
    # A machine that is busy takes its time for what there is room for.
    waits = "launcher | waiting for room: "
    lines = [line for line in job.text.splitlines() if not line.startswith(waits)]
    lines = [line for line in lines if line]
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
            f"Ray address {address!r} is not the address of a head node; give its host:port, "
            "such as 10.0.0.1:6379, or auto"
        )


def test_options_of_the_other_back_end_are_refused(launch, tmp_path):
    (tmp_path / "train.py").touch()
    job = launch("--workers", "1", "--cpus-per-worker", "2", "train.py")
    assert _error(job, 2) == (
        "--cpus-per-worker is for --backend ray; add that, or leave out "
        "--cpus-per-worker"
    )
    (tmp_path / "folder").mkdir()
    job = launch("--backend", "ray", "--working-dir", "folder", "train.py")
    assert _error(job, 2) == (
        "script 'train.py' is not in --working-dir 'folder', which is copied to the "
        "nodes; name a folder that has it"
    )


def test_a_job_that_waits_for_room_says_so_and_can_be_stopped(
    launch, cluster, tmp_path
):
    (tmp_path / "sleep.py").write_text(
        "import time\nprint('sleeps', flush=True)\ntime.sleep(240)\n"
    )
    where = ("--backend", "ray", "--ray-address", cluster.address)
    takes = ("--cpus-per-worker", "2", "--workers")
    holder = launch(*where, *takes, "0", "sleep.py")
    holder.wait_for(r"\| sleeps$", timeout_secs=90)
    job = launch(*where, *takes, len(cluster.nodes) - 2, "sleep.py")
    job.wait_for(r"^launcher \| waiting for room: the tasks take 2 CPU, 2 CPU")
    job.process.send_signal(signal.SIGINT)
    assert job.end() == 130
    assert job.text.endswith("estimator-runtime: stopped by SIGINT before the start\n")
    holder.process.send_signal(signal.SIGINT)
    holder.process.send_signal(signal.SIGINT)  # it does not stop by itself
    holder.end(60)


def test_a_node_with_another_version_is_named(launch, cluster, tmp_path):
    (tmp_path / "train.py").touch()
    package = Path(estimator_runtime.__file__).parent
    shutil.copytree(package, tmp_path / "old" / "estimator_runtime")
    old = tmp_path / "old" / "estimator_runtime" / "__init__.py"
    version = f'__version__ = "{estimator_runtime.__version__}"'
    assert version in old.read_text()
    old.write_text(old.read_text().replace(version, '__version__ = "0.0.1"'))
    # The only node with so many GPUs, as far as Ray knows.
    node = cluster.add(
        num_gpus=2,
        env_vars={"PYTHONPATH": str(tmp_path / "old")},
    )
    where = ("--backend", "ray", "--ray-address", cluster.address)
    job = launch(*where, "--gpus-per-worker", "2", "train.py")
    assert job.end(90) == 1, job.text
    assert (
        f"estimator-runtime: error: chief cannot be placed: node {node} has estimator_runtime "
        f"0.0.1, and this machine {estimator_runtime.__version__}; install the same "
        "versions on all nodes\n"
    ) in job.text


def _path_after(folder):
    import os

    return os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
