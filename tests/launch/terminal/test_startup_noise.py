"""Which lines of TensorFlow's start are left out: as it writes them, of two versions."""

import pytest

from estimator_runtime.launch.terminal.startup_noise import Preamble

NO_GPU = (
    "I0000 00:00:1795315667.980824    6103 cudart_stub.cc:31] Could not find cuda "
    "drivers on your machine, GPU will not be used.",
    "2026-11-22 02:48:12.380685: I external/local_tsl/tsl/cuda/cudart_stub.cc:31] Could "
    "not find cuda drivers on your machine, GPU will not be used.",
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
)
OTHERS = (
    "",
    "E0000 00:00:1795315669.930892    6103 cuda_platform.cc:52] failed call to cuInit: "
    "INTERNAL: CUDA error: Failed call to cuInit: UNKNOWN ERROR (303)",
    "2026-11-22 02:48:12.416359: E external/local_xla/xla/stream_executor/cuda/"
    "cuda_dnn.cc:9261] Unable to register cuDNN factory: Attempting to register factory",
    "2026-11-22 02:48:13.232758: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] "
    "TF-TRT Warning: Could not find TensorRT",
    "I0000 00:00:1795315669.930892    6103 grpc_server_lib.cc:467] Started server with "
    "target: grpc://127.0.0.1:42665",
    "W0000 00:00:1795315669.930892    6103 port.cc:153] oneDNN custom operations are on. ",
    "F0000 00:00:1795315669.930892    6103 cpu_feature_guard.cc:227] This TensorFlow "
    "binary is optimized to use available CPU instructions",
    "printed: To enable the following instructions: FMA, in other operations, rebuild "
    "TensorFlow with the appropriate compiler flags.",
)


def test_the_lines_of_the_start_are_taken_and_counted():
    preamble = Preamble(expects_gpu=False)
    assert [preamble.takes(line) for line in (*KNOWN, *NO_GPU)] == [True] * 8
    assert preamble.count == 8


@pytest.mark.parametrize("line", OTHERS)
def test_warnings_errors_and_all_that_is_not_on_the_list_stay(line):
    preamble = Preamble(expects_gpu=False)
    assert not preamble.takes(line)
    assert preamble.count == 0


@pytest.mark.parametrize("line", NO_GPU)
def test_that_there_is_no_gpu_is_said_where_there_should_be_one(line):
    assert not Preamble(expects_gpu=True).takes(line)
