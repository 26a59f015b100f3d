"""Modules of `tf.contrib` whose code is in private modules today; plain data."""

_TPU = "tensorflow.python.tpu"
_TPU_ESTIMATOR = "tensorflow_estimator.python.estimator.tpu"

# The module that stands for each, by the name of TensorFlow 1.15.
CONTRIB_MODULES: dict[str, str] = {
    "framework.nest": "tensorflow.python.util.nest",
    "framework.python.ops.audio_ops": "tensorflow.python.ops.gen_audio_ops",
    "tfprof.model_analyzer": "tensorflow.python.profiler.model_analyzer",
    "tfprof.tfprof_logger": "tensorflow.python.profiler.tfprof_logger",
    "tpu.proto.compilation_result_pb2": (
        "tensorflow.core.protobuf.tpu.compilation_result_pb2"
    ),
    "tpu.python.ops.tpu_ops": f"{_TPU}.ops.tpu_ops",
    "tpu.python.tpu.async_checkpoint": f"{_TPU}.async_checkpoint",
    "tpu.python.tpu.bfloat16": f"{_TPU}.bfloat16",
    "tpu.python.tpu.device_assignment": f"{_TPU}.device_assignment",
    "tpu.python.tpu.error_handling": f"{_TPU_ESTIMATOR}.error_handling",
    "tpu.python.tpu.functional": f"{_TPU}.functional",
    "tpu.python.tpu.session_support": f"{_TPU}.session_support",
    "tpu.python.tpu.tensor_tracer": f"{_TPU}.tensor_tracer",
    "tpu.python.tpu.topology": f"{_TPU}.topology",
    "tpu.python.tpu.tpu": f"{_TPU}.tpu",
    "tpu.python.tpu.tpu_config": f"{_TPU_ESTIMATOR}.tpu_config",
    "tpu.python.tpu.tpu_context": f"{_TPU_ESTIMATOR}.tpu_context",
    "tpu.python.tpu.tpu_estimator": f"{_TPU_ESTIMATOR}.tpu_estimator",
    "tpu.python.tpu.tpu_feed": f"{_TPU}.tpu_feed",
    "tpu.python.tpu.tpu_function": f"{_TPU}.tpu_function",
    "tpu.python.tpu.tpu_optimizer": f"{_TPU}.tpu_optimizer",
    "tpu.python.tpu.tpu_sharding": f"{_TPU}.tpu_sharding",
    "tpu.python.tpu.training_loop": f"{_TPU}.training_loop",
    "tpu.python.tpu.util": f"{_TPU_ESTIMATOR}.util",
}
