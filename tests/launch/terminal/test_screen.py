"""What is shown of a job: its progress, and the lines that its tasks write."""

import dataclasses
import io
import re

import pytest

from estimator_runtime.errors import ConfigError
from estimator_runtime.launch import Job, Resources
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.launch.terminal.job_status import JobStatus, TaskStatus
from estimator_runtime.launch.terminal.screen import (
    DisplaySettings,
    Screen,
    describe,
    line,
    total,
)
from estimator_runtime.output import native_log

_CHIEF = Task(type="chief", index=0)
_EVALUATOR = TaskStatus(
    name="evaluator",
    metrics={"accuracy": 0.75, "auc": 0.5, "loss": 0.3, "global_step": 100},
    best_metric="auc",
)
_SEEN = JobStatus(
    elapsed_secs=64.0,
    step=200,
    last_step=1000,
    rate=50.0,
    saved_step=150,
    restarts=0,
    tasks=(
        TaskStatus(name="ps 0", state="running", pid=4711, log="/m/logs/ps-0.log"),
        TaskStatus(name="chief", step=200, rate=30.0, loss=0.25),
        _EVALUATOR,
    ),
)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def _screen(stream=None, **settings):
    """Return (a screen, the stream that it writes to)."""
    stream = stream or io.StringIO()
    screen = Screen(Console(stream, stream), DisplaySettings(**settings))
    screen.open(["chief"])
    return screen, stream


# The progress.


def test_a_row_says_how_far_a_task_is():
    assert [describe(task) for task in _SEEN.tasks] == [
        "running, pid 4711",
        "step 200, 30.0 steps/s, loss 0.25",
        "evaluated step 100: loss 0.3, auc 0.5, accuracy 0.75",
    ]


def test_the_line_of_a_job_has_all_numbers():
    assert line(_SEEN) == (
        "step 200 of 1000 | checkpoint 150 | 50.0 steps/s (chief 30.0) | 0:00:16 left | "
        "loss 0.25 | evaluated step 100: loss 0.3, auc 0.5"
    )
    unknown = dataclasses.replace(
        _SEEN, step=7, last_step=None, rate=None, saved_step=None, restarts=2, tasks=()
    )
    assert line(unknown) == "step 7 | checkpoint none | restarts 2"


def test_a_job_that_waits_for_the_end_of_a_task_says_so():
    waiting = dataclasses.replace(_SEEN, step=1002, rate=None)
    assert line(waiting).startswith(
        "step 1000 of 1000 | checkpoint 150 | waiting for chief, evaluator | loss"
    )
    done = [dataclasses.replace(task, state="done") for task in _SEEN.tasks]
    assert "waiting" not in line(dataclasses.replace(waiting, tasks=tuple(done)))


_TOTAL = (
    "step 200 of 1000 | checkpoint 150 | 50.0 steps/s | 0:00:16 left | loss 0.25 | "
    "0:01:04 elapsed"
)


@pytest.mark.parametrize(
    ("columns", "can_unicode", "text"),
    [
        (len(_TOTAL) + 28, True, f" 20% |████                | {_TOTAL}"),
        (len(_TOTAL) + 13, False, f" 20% |#    | {_TOTAL}"),
        (len(_TOTAL) + 12, True, _TOTAL),
    ],
)
def test_the_row_of_a_job_has_a_bar_where_there_is_room(columns, can_unicode, text):
    assert total(_SEEN, columns, can_unicode) == text


def test_without_a_last_step_there_is_no_bar():
    seen = dataclasses.replace(_SEEN, last_step=None)
    assert total(seen, 200, True).startswith("step 200 | checkpoint 150 | 50.0 steps/s")


@pytest.mark.parametrize("progress", ["auto", "bar"])
def test_a_terminal_shows_a_row_for_each_task_and_a_bar(progress, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    screen, stream = _screen(Terminal(), progress=progress)
    screen.console.pinned.append("TensorBoard: http://127.0.0.1:6006/")
    screen.show(_SEEN, 1.0)
    names = [row.partition(" | ")[0].strip() for row in stream.getvalue().split("\n")]
    assert names == ["ps 0", "chief", "evaluator", "launcher", "total"]
    assert "launcher | TensorBoard: http://127.0.0.1:6006/, logs: /m/logs\n" in (
        stream.getvalue()
    )


def test_plain_is_one_line_below_the_others_on_a_terminal():
    screen, stream = _screen(Terminal(), progress="plain")
    seen = dataclasses.replace(_SEEN, tasks=(), last_step=None, rate=None)
    screen.show(seen, 1.0)
    screen.show(dataclasses.replace(seen, step=300), 2.0)
    assert stream.getvalue() == (
        "step 200 | checkpoint 150\r\x1b[Kstep 300 | checkpoint 150"
    )


@pytest.mark.parametrize("progress", ["auto", "bar", "plain"])
def test_elsewhere_a_line_comes_every_ten_seconds_while_there_are_steps(progress):
    screen, stream = _screen(progress=progress)
    steps = {0.0: 0, 1.0: 10, 9.0: 90, 10.0: 100, 15.0: 150, 20.0: 200, 30.0: 200}
    for now, step in {**steps, 31.0: 201}.items():
        screen.show(dataclasses.replace(_SEEN, step=step), now)
    assert re.findall(r"launcher \| step (\d+)", stream.getvalue()) == [
        "100",
        "200",
        "201",
    ]


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_none_shows_nothing(stream):
    screen, stream = _screen(stream(), progress="none")
    for now in (0.0, 10.0, 20.0):
        screen.show(dataclasses.replace(_SEEN, step=int(now)), now)
    assert stream.getvalue() == ""


# The settings.


def _job(**options):
    return Job(command=("train.py",), replicas={"chief": 1, "ps": 1}, **options)


def test_what_the_job_says_wins_over_the_environment(monkeypatch):
    monkeypatch.setattr(native_log, "has_gpu", lambda: False)
    environ = {"ESTIMATOR_RUNTIME_PROGRESS": "bar", "ESTIMATOR_RUNTIME_VERBOSE": "1"}
    assert DisplaySettings.of(_job(), {}) == DisplaySettings()
    job = _job(env={"ESTIMATOR_RUNTIME_PROGRESS": "none"})
    assert DisplaySettings.of(job, environ) == DisplaySettings(
        progress="none", is_verbose=True
    )


def test_a_gpu_is_expected_where_one_is_and_where_a_task_asks_for_one(monkeypatch):
    monkeypatch.setattr(native_log, "has_gpu", lambda: False)
    asks = _job(resources={"chief": Resources(cpus=1, gpus=1)})
    assert DisplaySettings.of(asks, {}).expects_gpu
    monkeypatch.setattr(native_log, "has_gpu", lambda: True)
    assert DisplaySettings.of(_job(), {}).expects_gpu


@pytest.mark.parametrize("name", ["PROGRESS", "VERBOSE", "LOG_LEVEL"])
def test_a_value_that_cannot_be_is_refused(name):
    variable = f"ESTIMATOR_RUNTIME_{name}"
    with pytest.raises(ConfigError, match=f"^{variable} is 'x'; give "):
        DisplaySettings.of(_job(), {variable: "x"})


# The lines.


@pytest.mark.parametrize(
    ("stream", "settings", "expected"),
    [
        (Terminal, {}, ["w", "e", "printed"]),
        (Terminal, {"progress": "none"}, ["i", "w", "e", "printed"]),
        (Terminal, {"log_level": "info"}, ["i", "w", "e", "printed"]),
        (Terminal, {"is_verbose": True}, ["i", "w", "e", "printed"]),
        (io.StringIO, {}, ["i", "w", "e", "printed"]),
        (io.StringIO, {"log_level": "error"}, ["e", "printed"]),
    ],
)
def test_only_warnings_are_above_the_rows_of_a_terminal_unless_more_is_wanted(
    stream, settings, expected
):
    screen, stream = _screen(stream(), **settings)
    for text in ("INFO:x:i", "WARNING:x:w", "ERROR:x:e"):
        screen.write(_CHIEF, text, is_error=True)
    screen.write(_CHIEF, "INFO:printed", is_error=False)
    shown = [text for text in stream.getvalue().splitlines() if text]
    assert [text.rpartition(":")[2] for text in shown] == expected
    screen.close()
    hidden = stream.getvalue().splitlines()[len(shown) :]
    assert len(hidden) == (len(expected) < 4)


def test_the_lines_that_are_only_in_the_files_are_counted():
    screen, stream = _screen(log_level="error")
    for text in ("INFO:x:i", "WARNING:x:w"):
        screen.write(_CHIEF, text, is_error=True)
    screen.close()
    assert stream.getvalue() == (
        "launcher | 2 lines are only in the logs of the tasks; --log-level info shows "
        "them here\n"
    )


# As TensorFlow writes them, of two versions.
NO_GPU = (
    "I0000 00:00:1795315667.980824    6103 cudart_stub.cc:31] Could not find cuda "
    "drivers on your machine, GPU will not be used.",
    "2026-11-22 02:48:12.380685: I external/local_tsl/tsl/cuda/cudart_stub.cc:31] Could "
    "not find cuda drivers on your machine, GPU will not be used.",
    "E0000 00:00:1795315669.930892    6103 cuda_platform.cc:52] failed call to cuInit: "
    "INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)",
    "2026-11-22 02:48:12.416359: E external/local_xla/xla/stream_executor/cuda/"
    "cuda_dnn.cc:9261] Unable to register cuDNN factory: Attempting to register factory "
    "for plugin cuDNN when one has already been registered",
    "2026-11-22 02:48:13.232758: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] "
    "TF-TRT Warning: Could not find TensorRT",
)
KNOWN = (
    "WARNING: All log messages before absl::InitializeLog() is called are written to "
    "STDERR",
    "I0000 00:00:1795315667.980463    6103 port.cc:153] oneDNN custom operations are on. "
    "You may see slightly different numerical results due to floating-point round-off "
    "errors from different computation orders. To turn them off, set the environment "
    "variable `TF_ENABLE_ONEDNN_OPTS=0`.",
    "2026-11-22 02:48:12.378121: I tensorflow/core/util/port.cc:113] oneDNN custom "
    "operations are on. You may see slightly different numerical results due to",
    "I0000 00:00:1795315668.030354    6103 cpu_feature_guard.cc:227] This TensorFlow "
    "binary is optimized to use available CPU instructions in performance-critical "
    "operations.",
    "To enable the following instructions: AVX2 AVX512F AVX_VNNI FMA, in other "
    "operations, rebuild TensorFlow with the appropriate compiler flags.",
    "2026-11-22 02:48:14.223951: I tensorflow/compiler/mlir/"
    "mlir_graph_optimization_pass.cc:388] MLIR V1 optimization pass is not enabled",
    "W0000 00:00:1795565681.555178    9857 local_rendezvous.cc:412] Local rendezvous is "
    "aborting with status: ABORTED: Cleanup 112271382593022978",
    "2026-11-22 02:48:14.223951: I tensorflow/core/framework/local_rendezvous.cc:421] "
    "Local rendezvous is aborting with status: OUT_OF_RANGE: End of sequence",
    "I0000 00:00:1795315669.930892    6103 grpc_server_lib.cc:467] Started server with "
    "target: grpc://127.0.0.1:42665",
    "I0000 00:00:1795693723.382184   12593 master.cc:243] Scanning workers for devices: "
    "2 total workers",
    "I0000 00:00:1795693723.396278   12593 coordination_service.cc:221] Initializing "
    "CoordinationService",
    "I0000 00:00:1795693723.396278   12593 session_mgr.cc:88] When creating WorkerSession "
    "for master task /job:chief/replica:0/task:0, found old WorkerSessions created by the "
    "same master task with a different incarnation. ",
    "I0000 00:00:1795693723.396278   12593 worker.cc:220] Cancellation requested for "
    "RunGraph.",
    "W0000 00:00:1795693724.142571   12334 grpc_worker_service.cc:536] RecvTensor "
    "cancelled for 59107563794219267",
    "I0000 00:00:1795693724.142571   12334 local_rendezvous.cc:430] Local rendezvous recv "
    "item cancelled. Key hash: 11435943243243",
    "W0000 00:00:1795693724.142571   12334 local_rendezvous.cc:412] Local rendezvous is "
    "aborting with status: ABORTED: Step 59107563794219267 cancelled.  Cancelling "
    "rendezvous.",
    "W0000 00:00:1795693724.142571   12334 local_rendezvous.cc:412] Local rendezvous is "
    "aborting with status: CANCELLED: Enqueue operation was cancelled",
)
OTHERS = (
    "",
    "I0000 00:00:1795315669.930892    6103 grpc_server_lib.cc:467] Unknown job",
    "W0000 00:00:1795315669.930892    6103 port.cc:153] oneDNN custom operations are on. ",
    "F0000 00:00:1795315669.930892    6103 cpu_feature_guard.cc:227] This TensorFlow "
    "binary is optimized to use available CPU instructions",
    "W0000 00:00:1795565681.555178    9857 local_rendezvous.cc:412] Local rendezvous is "
    "aborting with status: UNAVAILABLE: Connection reset by peer",
    "W0000 00:00:1795693724.141371   12264 local_rendezvous.cc:412] Local rendezvous is "
    "aborting with status: NOT_FOUND: nofile.csv; No such file or directory",
    "printed: To enable the following instructions: FMA, in other operations, rebuild "
    "TensorFlow with the appropriate compiler flags.",
)


def test_the_lines_of_the_start_are_left_out_and_counted():
    screen, shown = _screen()
    for text in (*KNOWN, *NO_GPU):
        screen.write(_CHIEF, text, is_error=True)
        screen.write_of_fork_server(text)
    assert shown.getvalue() == ""
    screen.close()
    assert f"{2 * len((*KNOWN, *NO_GPU))} lines" in shown.getvalue()


def _is_shown(text, is_error=True, **settings):
    screen, shown = _screen(**settings)
    screen.write(_CHIEF, text, is_error)
    return shown.getvalue() == f"chief    | {text}\n"


def test_all_lines_are_shown_of_a_verbose_job_and_on_standard_output():
    assert all(_is_shown(text, is_verbose=True) for text in KNOWN)
    assert all(_is_shown(text, is_error=False) for text in KNOWN)


def test_that_there_is_no_gpu_is_said_where_there_should_be_one():
    assert all(_is_shown(text, expects_gpu=True) for text in NO_GPU)


@pytest.mark.parametrize("text", OTHERS)
def test_warnings_errors_and_all_that_is_not_on_the_list_stay(text):
    assert _is_shown(text)


def test_a_message_of_several_lines_is_that_of_one_task():
    screen, shown = _screen()
    header = (
        "W0000 00:00:1795578705.020689   22089 type_inference.cc:340] Type inference "
        "failed. This indicates an invalid graph that escaped type checking."
    )
    screen.write(_CHIEF, header, is_error=True)
    screen.write(Task(type="ps", index=0), "}", is_error=True)
    screen.write(_CHIEF, "}", is_error=True)
    assert shown.getvalue() == "ps 0     | }\n"
