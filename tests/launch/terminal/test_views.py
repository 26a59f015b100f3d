"""What is shown of a job: its progress, and the lines that TensorFlow writes."""

import io

import pytest

from estimator_runtime.launch.supervisor.job_record import Record
from estimator_runtime.launch.supervisor.task_state import TaskState
from estimator_runtime.launch.task import Task
from estimator_runtime.launch.terminal import views
from estimator_runtime.launch.terminal.console import Console
from estimator_runtime.launch.terminal.job_status import Status


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def chief():
    watch = TaskState(Task(type="chief", index=0), max_restarts=3)
    watch.start(now=0.0)
    return watch


def shown(mode, stream, chief, looks):
    """Return what is written when the chief is at the steps of `looks`, by seconds."""
    console = Console(stream, stream)
    console.introduce(["chief"])
    way = views.View(mode, console)
    status = Status([chief], Record([], None))
    for now, step in looks.items():
        chief.hear({"step": step}, now)
        seen = status.poll(now)
        if seen is not None:
            way.show(seen, now)
    return stream.getvalue()


@pytest.mark.parametrize("mode", ["auto", "bar"])
def test_a_terminal_shows_a_row_for_each_task_and_a_bar(mode, chief):
    text = shown(mode, Terminal(), chief, {1.0: 10})
    assert text == (
        "\x1b[36mchief    | \x1b[0mstep 10\ntotal    | 10step [00:00, ?step/s]"
    )


def test_plain_is_one_line_below_the_others_on_a_terminal(chief):
    text = shown("plain", Terminal(), chief, {1.0: 10, 1.5: 11, 2.0: 20})
    assert text == (
        "step 10 | checkpoint none\r\x1b[Kstep 20 | 10.0 steps/s | checkpoint none"
    )


@pytest.mark.parametrize("mode", ["auto", "bar", "plain"])
def test_elsewhere_a_line_comes_every_ten_seconds_while_there_are_steps(mode, chief):
    looks = {0.0: 0, 1.0: 10, 9.0: 90, 10.0: 100, 15.0: 150, 18.0: 180, 20.0: 200}
    lines = shown(mode, io.StringIO(), chief, {**looks, 30.0: 200, 31.0: 201})
    assert [text.split(" | ")[1] for text in lines.splitlines()] == [
        "step 100",
        "step 200",
        "step 201",
    ]
    assert all(text.startswith("launcher | ") for text in lines.splitlines())


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_none_shows_nothing(stream, chief):
    assert shown("none", stream, chief, {0.0: 0, 10.0: 100, 20.0: 200}) == ""


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


def _screen(expects_gpu=False, **presentation):
    """Return (the screen of a job that expects a GPU or not, what it shows)."""
    shown = io.StringIO()
    presentation = views.Presentation(expects_gpu=expects_gpu, **presentation)
    return views.Screen(Console(shown, shown), presentation), shown


def test_the_lines_of_the_start_are_left_out_and_counted(chief):
    screen, shown = _screen()
    for line in (*KNOWN, *NO_GPU):
        screen.write(chief.task, line, is_error=True)
        screen.write_of_fork_server(line)
    assert shown.getvalue() == ""
    screen.close()
    assert f"{2 * len((*KNOWN, *NO_GPU))} lines" in shown.getvalue()


@pytest.mark.parametrize("line", KNOWN)
def test_all_lines_are_shown_of_a_verbose_job_and_on_standard_output(line, chief):
    screen, shown = _screen(is_verbose=True)
    screen.write(chief.task, line, is_error=True)
    assert shown.getvalue() == f"chief    | {line}\n"
    screen, shown = _screen()
    screen.write(chief.task, line, is_error=False)
    assert shown.getvalue() == f"chief    | {line}\n"


@pytest.mark.parametrize("line", OTHERS)
def test_warnings_errors_and_all_that_is_not_on_the_list_stay(line, chief):
    screen, shown = _screen()
    screen.write(chief.task, line, is_error=True)
    assert shown.getvalue() == f"chief    | {line}\n"


def test_a_message_of_several_lines_is_that_of_one_task(chief):
    screen, shown = _screen()
    header = (
        "W0000 00:00:1795578705.020689   22089 type_inference.cc:340] Type inference "
        "failed. This indicates an invalid graph that escaped type checking."
    )
    screen.write(chief.task, header, is_error=True)
    screen.write(Task(type="ps", index=0), "}", is_error=True)
    screen.write(chief.task, "}", is_error=True)
    assert shown.getvalue() == "ps 0     | }\n"


@pytest.mark.parametrize("line", NO_GPU)
def test_that_there_is_no_gpu_is_said_where_there_should_be_one(line, chief):
    screen, shown = _screen(expects_gpu=True)
    screen.write(chief.task, line, is_error=True)
    assert shown.getvalue() == f"chief    | {line}\n"
