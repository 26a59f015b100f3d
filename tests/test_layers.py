"""The package's modules import downward only, and its launching half no TensorFlow."""

import ast
import functools
import graphlib
import importlib.metadata
import pathlib
import re

import pytest

import estimator_runtime
from estimator_runtime.patching.table import PATCHES

_ROOT = pathlib.Path(estimator_runtime.__file__).parent
_PACKAGE = "estimator_runtime"
# From the lowest layer to the highest; modules of one line may import each other.
_LAYERS = (
    ("code_origin", "errors", "threads"),
    ("config",),
    ("reporting",),
    ("tf_internals",),
    ("patching",),
    ("output",),
    ("signals",),
    ("checkpoint.tensor_bundle",),
    ("checkpoint",),
    ("loop.graph",),
    ("loop",),
    ("distributed",),
    ("session",),
    ("estimator",),
    ("contrib",),
    ("tf1",),
    ("",),
    ("launch",),
    ("cli",),
    ("__main__",),
)
# Upward on purpose.
_EXCEPTIONS = {
    # It stands alone in site-packages, where it finds the whole package or none.
    ("patching.injection.startup._estimator_runtime_startup", ""),
}
# What explains itself at once, and starts, watches and restarts tasks.
_LAUNCHING_HALF = (
    "cli",
    "code_origin",
    "config",
    "errors",
    "launch",
    "reporting",
    "threads",
)
# What may import private names of TensorFlow.
_KNOW_TENSORFLOW = ("tf_internals", "patching", "estimator", "tf1")
# Seconds of import, which `--help` must not wait for.
_HEAVY = {"keras", "numpy", "tensorflow", "tensorflow_estimator", "tf_keras"}


def _name(path):
    parts = path.relative_to(_ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


_MODULES = {_name(path): path for path in sorted(_ROOT.rglob("*.py"))}
# Read here, as it takes longer than a unit test may.
_TREES = {path: ast.parse(path.read_text()) for path in _MODULES.values()}


def _nodes(node, inside):
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if inside or not is_function:
            yield child
            yield from _nodes(child, inside)


@functools.cache
def _imports(module, inside_functions=True):
    """Return the full names that a module imports, ours and others."""
    found = set()
    path = _MODULES[module]
    tree = _TREES.get(path) or ast.parse(path.read_text())
    for node in _nodes(tree, inside_functions):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def _ours(module, inside_functions=True):
    """Return the modules of the package that a module imports, by their short names."""
    for full in _imports(module, inside_functions):
        package, _, name = full.partition(".")
        if package == _PACKAGE:
            yield name if name in _MODULES else name.rpartition(".")[0]


def _layer(module):
    """Return the number of the layer with the longest name that the module begins with."""
    found = [
        (len(name), number)
        for number, layer in enumerate(_LAYERS)
        for name in layer
        if module == name or (name and module.startswith(f"{name}."))
    ]
    assert found, f"{module} belongs to no layer of this test"
    return max(found)[1]


def _upward(module):
    return {
        (module, imported)
        for imported in _ours(module)
        if _layer(imported) > _layer(module)
    }


@pytest.mark.parametrize("module", _MODULES)
def test_a_module_imports_from_its_own_layer_or_a_lower_one(module):
    assert _upward(module) == {each for each in _EXCEPTIONS if each[0] == module}


def test_an_import_of_a_higher_layer_is_found(monkeypatch, tmp_path):
    broken = tmp_path / "hook.py"
    broken.write_text("def f():\n    from estimator_runtime.session import creators\n")
    monkeypatch.setitem(_MODULES, "checkpoint.broken", broken)
    assert _upward("checkpoint.broken") == {("checkpoint.broken", "session.creators")}


def test_no_modules_import_each_other_in_a_circle_for_types_neither():
    graph = {
        each: {name for name in _ours(each, inside_functions=False) if name != each}
        for each in _MODULES
    }
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) == len(_MODULES)


@pytest.mark.parametrize(
    "module", [name for name in _MODULES if name.startswith(_LAUNCHING_HALF)]
)
def test_the_launching_half_imports_no_tensorflow(module):
    seen, waiting = set(), {module}
    while waiting:
        each = waiting.pop()
        seen.add(each)
        parents = {each.rsplit(".", n)[0] for n in range(1, each.count(".") + 1)}
        waiting |= {*parents, *_ours(each, inside_functions=False)} - seen
        heavy = {full.partition(".")[0] for full in _imports(each, False)} & _HEAVY
        assert not heavy, f"{module} imports {each}, which imports {heavy}"


def test_the_files_of_a_checkpoint_are_read_by_a_package_that_stands_alone():
    inside = [name for name in _MODULES if name.startswith("checkpoint.tensor_bundle")]
    used = {imported for name in inside for imported in _ours(name)}
    assert {name for name in used if name not in inside} <= {"errors"}


def test_launch_does_not_import_the_training_half():
    training = ("session", "distributed", "loop", "signals", "contrib")
    used = {
        (name, imported)
        for name in _MODULES
        if name.startswith("launch")
        for imported in _ours(name)
        if imported.startswith(training) and imported != "signals.inbox"
    }
    # It imports TensorFlow, so that the tasks that it forks need not.
    assert used == {
        ("launch.backends.local.fork_server", "distributed.train_and_evaluate")
    }


@pytest.mark.parametrize(
    "module", [name for name in _MODULES if not name.startswith(_KNOW_TENSORFLOW)]
)
def test_private_names_of_tensorflow_are_imported_by_few_rooms_only(module):
    private = ("tensorflow.python", "tensorflow_estimator.python")
    assert [each for each in _imports(module) if each.startswith(private)] == []


def test_class_names_are_unique():
    where = {}
    for name, path in _MODULES.items():
        for node in _TREES[path].body:
            if isinstance(node, ast.ClassDef):
                where.setdefault(node.name, []).append(name)
    # As in tf.contrib.learn, whose names they keep.
    where["RunConfig"].remove("contrib.learn")
    where["TaskType"].remove("contrib.learn")
    assert {name: all_ for name, all_ in where.items() if len(all_) > 1} == {}


def _defined(module):
    tree = _TREES[_MODULES[module]]
    return {getattr(node, "name", None) for node in tree.body}


def test_references_by_string_lead_to_what_there_is():
    table = _MODULES["patching.table"].read_text()
    found = re.findall(r'late\("([\w.]+):(\w+)"\)', table)
    assert len(found) >= len(PATCHES)
    found += [
        (module.removeprefix(f"{_PACKAGE}."), name)
        for name, module in estimator_runtime._TRAINING_HALF.items()
    ]
    for each in importlib.metadata.entry_points(group="estimator_runtime.backends"):
        module, _, name = each.value.removeprefix(f"{_PACKAGE}.").partition(":")
        found.append((module, name))
    assert [each for each in found if each[1] not in _defined(each[0])] == []
