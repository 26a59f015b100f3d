"""The private attributes of TensorFlow that the runtime uses exist on each TensorFlow."""

import ast
import contextlib
import importlib
import importlib.util
import inspect
import pathlib
import re

import pytest

import estimator_runtime

estimator_runtime.install()

_PYTHON = "tensorflow.python"
_HOOKS = f"{_PYTHON}.training.basic_session_run_hooks"
_MONITORED = f"{_PYTHON}.training.monitored_session"
# Each class, or module, with the private attributes that this package uses.
ATTRIBUTES = {
    f"{_HOOKS}:CheckpointSaverHook": "_checkpoint_dir _get_saver _global_step_tensor "
    "_save _saver _timer",
    f"{_HOOKS}:LoggingTensorHook": "_iter_count _log_tensors _timer",
    f"{_HOOKS}:NanTensorHook": "_loss_tensor",
    f"{_HOOKS}:ProfilerHook": "_next_step _timer",
    f"{_HOOKS}:SecondOrStepTimer": "_every_secs _every_steps _last_triggered_time",
    f"{_HOOKS}:StepCounterHook": "_last_global_step _log_and_record _summary_writer "
    "_timer",
    f"{_HOOKS}:StopAtStepHook": "_last_step",
    f"{_HOOKS}:SummarySaverHook": "_next_step _timer",
    f"{_MONITORED}:MonitoredSession": "_close_internal",
    f"{_MONITORED}:Scaffold": "_user_init_fn",
    f"{_MONITORED}:_MonitoredSession": "_coordinated_creator _sess",
    f"{_MONITORED}:_WrappedSession": "_check_stop _sess",
    f"{_PYTHON}.checkpoint.checkpoint_management": "_prefix_to_checkpoint_path",
    f"{_PYTHON}.client.session:BaseSession": "_closed _config _do_call _do_run "
    "_make_callable_from_options",
    f"{_PYTHON}.client.session:_FetchHandler": "_fetch_handles _fetch_mapper _ops",
    f"{_PYTHON}.data.ops.iterator_ops": "_IteratorSaveable",
    f"{_PYTHON}.distribute.collective_all_reduce_strategy:CollectiveAllReduceExtended": (
        "_initialize_local _initialize_multi_worker _start_check_health_thread "
        "_task_type"
    ),
    f"{_PYTHON}.distribute.cross_device_ops:CollectiveAllReduce": "_all_reduce "
    "_num_between_graph_workers",
    f"{_PYTHON}.distribute.distribute_coordinator:_WorkerContext": "_strategy",
    f"{_PYTHON}.distribute.mirrored_strategy:MirroredExtended": "_collective_ops "
    "_cross_device_ops _devices",
    f"{_PYTHON}.eager.context:Context": "_initialized",
    f"{_PYTHON}.framework.dtypes:DType": "_is_ref_dtype",
    f"{_PYTHON}.framework.ops:Graph": "_functions _mutation_lock _unsafe_unfinalize",
    f"{_PYTHON}.framework.ops:Operation": "_add_control_input _set_attr",
    f"{_PYTHON}.ops.resource_variable_ops:BaseResourceVariable": "_as_graph_element "
    "_graph_element",
    f"{_PYTHON}.saved_model.builder_impl:SavedModelBuilder": "_add_train_op",
    f"{_PYTHON}.summary.writer.writer:FileWriter": "_closed",
    f"{_PYTHON}.summary.writer.writer_cache:FileWriterCache": "_cache",
    f"{_PYTHON}.training.checkpoint_utils": "_get_checkpoint_filename",
    f"{_PYTHON}.training.evaluation": "_evaluate_once _get_or_create_eval_step",
    f"{_PYTHON}.training.saver:Saver": "_builder _is_empty _last_checkpoints "
    "_next_checkpoint_time _pad_step_number _reshape _save_relative_paths "
    "_write_version",
    f"{_PYTHON}.training.session_manager:SessionManager": "_model_ready "
    "_model_ready_for_local_init _restore_checkpoint",
    f"{_PYTHON}.training.sync_replicas_optimizer:SyncReplicasOptimizer": (
        "_replicas_to_aggregate"
    ),
    f"{_PYTHON}.training.sync_replicas_optimizer:_SyncReplicasOptimizerHook": (
        "_sync_optimizer"
    ),
}
_KERAS = {"_GRAPH_LEARNING_PHASES", "_SEED_GENERATOR"}
# Importing tf_internals fails without them.
_IMPORTED = {
    *("_FetchHandler", "_HookedSession", "_MonitoredSession", "_PREEMPTION_ERRORS"),
    *("_SyncReplicasOptimizerHook", "_WrappedSession", "_get_saver_or_default"),
    *("_create_monitored_session_with_worker_context", "_graph_to_seed_dict"),
}
_OF_PYTHON = {
    *("_ArgumentGroup", "_SubParsersAction", "_actions", "_current_frames", "_exit"),
    *("_fields", "_getframe", "_get_module_details", "_initializing"),
    *("_run_exitfuncs", "_shutdown"),
}


def _has(owner, name):
    """Return whether a class, an instance of it or a module has an attribute."""
    if hasattr(owner, name):
        return True
    sources = []
    for cls in inspect.getmro(owner):
        with contextlib.suppress(OSError, TypeError):  # of a class in C++
            sources.append(inspect.getsource(cls))
    return any(re.search(rf"self\.{name}\b", source) for source in sources)


@pytest.mark.parametrize("owner", ATTRIBUTES)
def test_a_private_attribute_exists(owner):
    module, _, cls = owner.partition(":")
    found = importlib.import_module(module)
    found = getattr(found, cls) if cls else found
    names = ATTRIBUTES[owner].split()
    assert [name for name in names if not _has(found, name)] == []


def test_the_classes_nested_in_private_ones_exist():
    from estimator_runtime.tf_internals import sessions, strategies

    assert _has(sessions.CoordinatedSessionCreator, "_session_creator")
    assert strategies.MultiWorkerExtended


def _private(node):
    """Return the private name that an expression reads or sets on an object."""
    name = None
    if isinstance(node, ast.Attribute):
        is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        name = None if is_own else node.attr
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
        "getattr",
        "hasattr",
    ):
        name = getattr(node.args[1], "value", None)
    is_private = isinstance(name, str) and re.match("_[^_]", name)
    return name if is_private else None


def test_each_private_attribute_that_the_package_uses_is_listed():
    package = pathlib.Path(estimator_runtime.__file__).parent
    used, ours = set(), set()
    for path in package.rglob("*.py"):
        text = path.read_text()
        # Definitions, and attributes that our own classes set on themselves.
        ours |= set(re.findall(r"(?:def |class |self\.)(_\w+)", text))
        ours |= set(re.findall(r"^ *(_\w+)(?:: [^=\n]+)?(?: =|$)", text, re.M))
        used |= {name for node in ast.walk(ast.parse(text)) if (name := _private(node))}
    frozen = pathlib.Path(
        importlib.util.find_spec("tensorflow_estimator").origin
    ).parent
    of_frozen = {
        name
        for path in frozen.rglob("*.py")
        for name in re.findall(r"\b_[a-zA-Z]\w+", path.read_text())
    }
    listed = {name for names in ATTRIBUTES.values() for name in names.split()}
    unknown = used - ours - of_frozen - listed - _KERAS - _IMPORTED - _OF_PYTHON
    # Of a namedtuple, of a nested class, and made of a public name by the frozen package.
    others = {"_replace", "_session_creator", "_experimental_distribute"}
    assert unknown - others == set()
