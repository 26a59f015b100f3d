"""Jobs of real processes that do not train: what becomes of them and of their lines."""

import os
import re
import signal
import socket
import textwrap
import time

import pytest

# What a task does: python code, by its task type and how often it has run before.
_PRELUDE = """\
import json, os, pathlib, signal, sys, time

task = json.loads(os.environ["TF_CONFIG"])["task"]
name = f"{task['type']}-{task['index']}"
lives = pathlib.Path(f"lives-{name}")
life = int(lives.read_text()) if lives.exists() else 0
lives.write_text(str(life + 1))
print("pid", os.getpid(), "life", life, flush=True)


# Wait until so many tasks have come here: without it, the end of the trainers
# may release an evaluator or a ps that has not written its lines yet.
def meet(tasks):
    pathlib.Path(f"here-{name}").touch()
    deadline = time.monotonic() + 60
    while len(list(pathlib.Path().glob("here-*"))) < tasks:
        assert time.monotonic() < deadline, "the others did not come"
        time.sleep(0.02)
"""


@pytest.fixture
def run(launch, tmp_path):
    """Return a function that runs a program as a job of plain processes."""

    def start(program, *options, **others):
        (tmp_path / "toy.py").write_text(_PRELUDE + textwrap.dedent(program))
        return launch("--cold", *options, "toy.py", **others)

    return start


def test_each_task_has_its_place_in_one_cluster_and_its_lines_have_its_name(run):
    job = run(
        """
        config = json.loads(os.environ["TF_CONFIG"])
        shown = sorted((job, len(tasks)) for job, tasks in config["cluster"].items())
        print(shown, flush=True)
        assert len(set(sum(config["cluster"].values(), []))) == 4
        print("to stderr", file=sys.stderr, flush=True)
        meet(5)
        """,
        *("--workers", "2", "--ps", "1", "--evaluator"),
    )
    assert job.end() == 0
    tasks = {"chief", "evaluator", "ps 0", "worker 0", "worker 1"}
    for line in (
        r"pid \d+ life 0",
        r"\[\('chief', 1\), \('ps', 1\), \('worker', 2\)\]",
        "to stderr",
    ):
        named = re.findall(rf"^(.*?) *\| {line}$", job.text, re.MULTILINE)
        assert set(named) == tasks


def test_a_failure_for_good_names_the_task_its_traceback_and_its_log(run, tmp_path):
    job = run(
        """
        if name == "worker-0":
            time.sleep(0.5)  # so that what it has printed has been read
            raise KeyError("label")
        time.sleep(60)
        """,
        *("--workers", "1", "--ps", "1", "--max-restarts", "0", "--log-dir", "logs"),
    )
    assert job.end() == 1
    report = job.text[job.text.index("estimator-runtime: ") :]
    line = _PRELUDE.count("\n") + 4
    assert report == (
        "estimator-runtime: worker 0 ended with KeyError (exit status 1): no restarts\n"
        "  Traceback (most recent call last):\n"
        f'    File "{tmp_path}/toy.py", line {line}, in <module>\n'
        '      raise KeyError("label")\n'
        "  KeyError: 'label'\n"
        "log: logs/worker-0.log\n"
        "newest good checkpoint: not known here, as no task has said where it saves "
        "them\n"
    )
    # The launcher's line "started" may come later: it is not of the task's own output.
    assert "\nKeyError: 'label'\n" in (tmp_path / "logs" / "worker-0.log").read_text()


@pytest.mark.parametrize(
    "number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_stopped_launcher_stops_workers_then_the_chief_then_the_ps(
    run, number, status
):
    job = run(
        """
        def stop(number, _):
            print("stopping", flush=True)
            if task["type"] != "ps":
                time.sleep(0.5)  # a checkpoint being saved
            print("stopped", flush=True)
            os._exit(0)

        signal.signal(signal.SIGTERM, stop)
        print("waits", flush=True)
        time.sleep(60)
        """,
        *("--workers", "1", "--ps", "1"),
    )
    job.wait_for(r"\| waits$", count=3)
    job.process.send_signal(number)
    assert job.end() == status
    said = re.findall(r"^(\S+)[ \d]*\| (stopping|stopped)$", job.text, re.MULTILINE)
    order = ("worker", "chief", "ps")
    assert said == [(task, each) for task in order for each in ("stopping", "stopped")]
    assert f"the job was stopped by {number.name}" in job.text


def test_a_job_that_is_stopped_while_tensorflow_is_imported_starts_nothing(
    launch, tmp_path
):
    (tmp_path / "toy.py").write_text("print('started')")
    # Imported by the parent, before it is ready; and it would take long.
    (tmp_path / "tensorflow.py").write_text(
        "import pathlib, time\npathlib.Path('importing').touch()\ntime.sleep(100)\n"
    )
    job = launch("--workers", "1", "toy.py", PYTHONPATH=_with(tmp_path))
    deadline = time.monotonic() + 60
    while not (tmp_path / "importing").exists():
        assert time.monotonic() < deadline, job.text
        time.sleep(0.02)
    job.process.send_signal(signal.SIGINT)
    assert job.end(60) == 130
    assert "started" not in job.text
    assert "the job was stopped by SIGINT" in job.text


@pytest.mark.parametrize(
    "number, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_before_the_start_of_a_job_ends_the_command_with_a_line(
    run_python, tmp_path, number, status
):
    """As while a job waits for room in a cluster."""
    (tmp_path / "toy.py").touch()
    program = f"""
import os, sys, time
from estimator_runtime.cli.main import main
from estimator_runtime.launch.backends.local.backend import LocalBackend

def submit(self, job):
    os.kill(os.getpid(), {int(number)})
    time.sleep(60)

LocalBackend.submit = submit
sys.exit(main(["run", "--cold", "--workers", "1", "toy.py"]))
"""
    ended = run_python("-c", program, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (
        status,
        f"estimator-runtime: stopped by {number.name} before the start\n",
    )


def _with(folder):
    """Return the path of modules with one more folder before all others."""
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


_HOLDS_THE_LOCK = """
    import ctypes, types

    sys.modules["tensorflow"] = types.ModuleType("tensorflow")  # counts as imported
    time.sleep(2.5)  # which is reported once a second
    {call}
    print("is back", flush=True)
"""

_WORKS_ON = """
    before = time.process_time()
    sum(range(1_000_000))  # native code that never lets go of python's lock
    number = int(1_000_000 * 11 / (time.process_time() - before))
    sum(range(number))  # 11 s of CPU time
"""


def test_a_native_call_that_works_on_with_the_lock_of_python_is_waited_for(run):
    job = run(
        _HOLDS_THE_LOCK.format(call=_WORKS_ON),
        *("--workers", "0", "--ps", "0", "--heartbeat-timeout", "5"),
    )
    assert job.end() == 0, job.text
    assert "chief    | is back\n" in job.text
    assert "killing it" not in job.text
    assert re.search(
        r"^launcher \| chief has not reported for \d+ s, but uses the CPU: still "
        r"waiting; a native call may be holding the GIL$",
        job.text,
        re.M,
    ), job.text


def test_a_native_call_that_sleeps_with_the_lock_of_python_is_taken_for_a_hang(run):
    job = run(
        _HOLDS_THE_LOCK.format(call="ctypes.PyDLL(None).sleep(300)"),
        *("--workers", "0", "--ps", "0", "--heartbeat-timeout", "3"),
        *("--max-restarts", "0"),
    )
    assert job.end() == 1
    assert re.search(
        r"\| chief gave no sign of life for \d+ s: killing it$", job.text, re.M
    )


_BEFORE_SILENCE_COUNTS = """
import types
sys.modules["tensorflow"] = types.ModuleType("tensorflow")  # as after its import
time.sleep(1.5)
"""


def test_a_task_that_closes_all_descriptors_reports_on_and_into_no_file_of_its_own(
    run, tmp_path
):
    job = run(
        f"""{_BEFORE_SILENCE_COUNTS}
os.closerange(3, 4096)
files = [open(f"file-{{number}}", "w") for number in range(32)]
time.sleep(8)
""",
        *("--workers", "0", "--ps", "0", "--heartbeat-timeout", "5"),
        *("--max-restarts", "0"),
    )
    assert job.end() == 0, job.text
    assert "killing it" not in job.text
    assert [each.stat().st_size for each in tmp_path.glob("file-*")] == [0] * 32


def test_a_task_that_replaces_itself_reports_on(run):
    """As programs do to set PYTHONHASHSEED."""
    job = run(
        f"""
if "PYTHONHASHSEED" in os.environ:
    import estimator_runtime
    estimator_runtime.install()  # as the import of TensorFlow does
    time.sleep(8)
    sys.exit()
{_BEFORE_SILENCE_COUNTS}
os.environ["PYTHONHASHSEED"] = "0"
os.execv(sys.executable, [sys.executable, *sys.argv])
""",
        *("--workers", "0", "--ps", "0", "--heartbeat-timeout", "5"),
        *("--max-restarts", "0"),
    )
    assert job.end() == 0, job.text
    assert "killing it" not in job.text


@pytest.mark.parametrize("folder", ["toy.py", "/proc/self/fdinfo"])
def test_a_log_folder_in_which_no_file_can_be_made_stops_the_job_before_its_start(
    launch, tmp_path, folder
):
    (tmp_path / "toy.py").write_text("print('ran')")
    # The second is there, and the rights would do, even for root.
    job = launch("--workers", "1", "--log-dir", folder, "toy.py")
    assert job.end() == 1
    assert job.text.startswith(
        f"estimator-runtime: log folder '{folder}' cannot be written: "
    )
    assert "ran" not in job.text


def test_a_tf_config_of_the_launchers_own_is_refused(launch, tmp_path):
    (tmp_path / "toy.py").touch()
    job = launch("--workers", "1", "toy.py", TF_CONFIG="{}")
    assert (job.end(), job.text) == (
        1,
        "estimator-runtime: error: TF_CONFIG is set in the environment, and the launcher "
        "makes one for each task; unset TF_CONFIG, or leave out --workers, --ps, "
        "--evaluator and --backend to run one task\n",
    )


@pytest.mark.parametrize("options", [(), ("--private-network",)])
def test_only_its_tasks_reach_what_listens_in_a_private_network(run, tmp_path, options):
    job = run(
        """
        import socket
        config = json.loads(os.environ["TF_CONFIG"])
        host, port = config["cluster"]["worker"][0].split(":")
        if name == "worker-0":
            with socket.create_server(("", int(port))) as server:
                print("listens at", port, flush=True)
                server.accept()
                meet(3)  # the test is the third
        else:
            while True:
                try:
                    socket.create_connection((host, int(port))).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            meet(3)
        """,
        *("--workers", "1", *options),
    )
    try:
        port = int(job.wait_for(r"\| listens at (\d+)$")[1])
    except AssertionError:
        if "the kernel does not allow" in job.text:
            pytest.skip(job.text)
        raise
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        is_reached = True
    except ConnectionRefusedError:
        is_reached = False
    assert is_reached == (not options)
    (tmp_path / "here-test").touch()
    assert job.end() == 0
