"""The script: which names of TensorFlow it uses, by static analysis. Nothing is run.

Names are resolved from the imports of TensorFlow, by their full path. The same is read
from the program's own modules (see `find_own_modules`). The analysis finds names that
TensorFlow 2 lacks, and some names that TensorFlow 2 has with another meaning: a script
that uses those starts, and then trains differently than before or fails on the way.
"""

import ast
import dataclasses
import os
import pathlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from estimator_runtime.cli.doctor import batches
from estimator_runtime.cli.doctor.finding import NOTE, OK, PROBLEM, Finding
from estimator_runtime.cli.script import load_script
from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.tf_internals import versions

_ROOTS = ("tensorflow", "tensorflow_estimator", "keras")
# Names of modules, in any package.
_OF_ESTIMATORS = {"estimator", "tpu_estimator", "tpu_config"}
_SUMMARIES = tuple(
    f"tensorflow.summary.{each}"
    for each in ("audio", "histogram", "image", "scalar", "text")
)
_WRITER = "tensorflow.summary.create_file_writer"
_DROPOUT = "tensorflow.nn.dropout"
# Methods that only datasets of TensorFlow 1 have.
_METHODS = ("make_initializable_iterator", "make_one_shot_iterator")
_SHOWN = 5  # names in the line of a script
_TRAIN = "tensorflow.train."
# Estimators whose optimizer is an argument, each another one in TensorFlow 1.
_CANNED = tuple(
    f"tensorflow.estimator.{each}" for each in ("DNN", "Linear", "BoostedTrees")
)
# The parts of Keras that models consist of. Others, such as keras.utils, do no harm.
_MODELS_OF_KERAS = (
    *("keras.Input", "keras.Model", "keras.Sequential", "keras.Variable"),
    *("keras.applications", "keras.layers", "keras.metrics", "keras.models"),
    "keras.optimizers",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uses:
    """The names that a script uses, and their lines.

    Uses inside a guard are left out, except in `tpu_lines`. A guard is a `try` that
    handles exceptions, or an `if` about versions or `hasattr`.

    Attributes:
        names: Dotted name, such as "tensorflow.estimator.RunConfig", to the first line
            that needs it.
        methods: Name of a method that is called on anything but a name of TensorFlow,
            to the first line that calls it.
        by_position: Name of TensorFlow to the first line that calls it with two or more
            positional arguments.
        tpu_lines: Lines that pass use_tpu=True.
        keras_names: Name of the package keras, such as "keras.layers.Dense", to the
            first line that needs it.
        input: What it shows about its input.
    """

    names: dict[str, int]
    methods: dict[str, int]
    by_position: dict[str, int]
    tpu_lines: tuple[int, ...]
    keras_names: dict[str, int]
    input: batches.InputUse

    @property
    def estimator_names(self) -> tuple[str, ...]:
        """The names in `names` that belong to Estimators."""
        return tuple(
            each for each in self.names if _OF_ESTIMATORS.intersection(each.split("."))
        )


def read(source: str | bytes) -> Uses:
    """Return what a script uses; `source` must be valid Python."""
    tree = ast.parse(source)
    imports = _Imports()
    imports.visit(tree)
    names = _Names(imports.meanings())
    names.visit(tree)
    found = dict(sorted(names.found.items(), key=lambda item: item[1]))
    stored = tuple(names.stored)
    of_keras = {n: at for n, at in found.items() if n.partition(".")[0] == "keras"}
    return Uses(
        names={
            name: line
            for name, line in found.items()
            if name not in of_keras
            and not any(f"{name}.".startswith(f"{each}.") for each in stored)
        },
        methods=names.methods,
        by_position=names.by_position,
        tpu_lines=tuple(names.tpu_lines),
        keras_names=of_keras,
        input=batches.read(tree),
    )


class _Imports(ast.NodeVisitor):
    """A visitor that finds which name of the script stands for which module."""

    def __init__(self) -> None:
        self._found: dict[str, set[str]] = {}
        self._bound: set[str] = set()

    def meanings(self) -> dict[str, str]:
        # A name that is also bound in another way, such as by tf = tf.compat.v1, is
        # ambiguous.
        return {
            name: next(iter(dotted))
            for name, dotted in self._found.items()
            if len(dotted) == 1 and name not in self._bound
        }

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            if each.name.partition(".")[0] in _ROOTS:
                name = each.asname or each.name.partition(".")[0]
                meaning = each.name if each.asname else name
                self._found.setdefault(name, set()).add(meaning)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and (node.module or "").partition(".")[0] in _ROOTS:
            for each in node.names:
                meaning = f"{node.module}.{each.name}"
                self._found.setdefault(each.asname or each.name, set()).add(meaning)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._bound.add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        self._bound.add(node.arg)
        self.generic_visit(node)


class _Names(ast.NodeVisitor):
    """A visitor that finds the dotted names that a script needs outside of guards."""

    def __init__(self, meanings: dict[str, str]) -> None:
        self._meanings = meanings
        self._guards = 0
        self.found: dict[str, int] = {}
        self.stored: set[str] = set()
        self.methods: dict[str, int] = {}
        self.by_position: dict[str, int] = {}
        self.tpu_lines: list[int] = []

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            self._need(each.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0 and node.module:
            for each in node.names:
                star = each.name == "*"
                name = node.module if star else f"{node.module}.{each.name}"
                self._need(name, node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        dotted = self._dotted(node)
        if dotted is None:
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Load):
            self._need(dotted, node.lineno)
        else:
            self.stored.add(dotted)

    def visit_Call(self, node: ast.Call) -> None:
        for each in node.keywords:
            is_true = isinstance(each.value, ast.Constant) and each.value.value is True
            if each.arg == "use_tpu" and is_true:
                self.tpu_lines.append(node.lineno)
        if isinstance(node.func, ast.Attribute) and not self._guards:
            dotted, line = self._dotted(node.func), node.func.end_lineno or 0
            if dotted is None:  # the last of a chain of calls is visited first
                name = node.func.attr
                self.methods[name] = min(line, self.methods.get(name, line))
            elif len(node.args) > 1:
                self.by_position.setdefault(dotted, line)
        self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        self._visit(node, guards=bool(node.handlers))

    visit_TryStar = visit_Try  # `except*`, of Python 3.11

    def visit_If(self, node: ast.If) -> None:
        text = ast.unparse(node.test).lower()
        guards = re.search(r"\bhasattr\b|(?<![a-z])version", text) is not None
        self._visit(node, guards=guards)

    def _visit(self, node: ast.AST, guards: bool) -> None:
        self._guards += guards
        self.generic_visit(node)
        self._guards -= guards

    def _need(self, dotted: str, line: int) -> None:
        if not self._guards and dotted.partition(".")[0] in _ROOTS:
            self.found.setdefault(dotted, line)

    def _dotted(self, node: ast.expr) -> str | None:
        """Return the full path of a name of TensorFlow; None for any other."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._meanings:
            return None
        return ".".join([self._meanings[node.id], *reversed(parts)])


def find(uses: Uses) -> list[tuple[int, str, str, str]]:
    """Return the uses of names that mean something else in TensorFlow 2 than in 1.

    Returns:
        Tuples (line, what stands there, how it differs, what to write instead), in the
        order of the lines. Names have their full path.
    """
    return sorted([*_summaries(uses), *_dropout(uses), *_iterators(uses)])


def _summaries(uses: Uses) -> Iterator[tuple[int, str, str, str]]:
    if _WRITER in uses.names:  # the script uses the summaries of TensorFlow 2
        return
    for name in _SUMMARIES:
        if name in uses.names:
            of_v1 = name.replace("tensorflow", "tensorflow.compat.v1")
            difference = "writes nothing in a model_fn, where it has no writer"
            yield uses.names[name], name, difference, of_v1


def _dropout(uses: Uses) -> Iterator[tuple[int, str, str, str]]:
    if _DROPOUT in uses.by_position:
        yield (
            uses.by_position[_DROPOUT],
            f"{_DROPOUT}(x, p)",
            "drops p of x, where that of TensorFlow 1 keeps it",
            "rate=, to be clear",
        )


def _iterators(uses: Uses) -> Iterator[tuple[int, str, str, str]]:
    datasets = "tensorflow.data.", "tensorflow.compat.v1.data."
    is_new, is_old = (
        any(f"{name}.".startswith(each) for name in uses.names) for each in datasets
    )
    if is_old or not is_new or "tensorflow.compat.v1" in uses.names:
        return
    for method in _METHODS:
        if method in uses.methods:
            yield (
                uses.methods[method],
                f".{method}()",
                "is not a method of a dataset of TensorFlow 2",
                f"tensorflow.compat.v1.data.{method}(dataset), or return the dataset "
                "itself from the input_fn",
            )


def load(path: str | None) -> tuple[Uses | None, Finding | None]:
    """Return what a script uses, and a finding if it cannot be analysed.

    At most one of the two is not None; both are None without a script.
    """
    if path is None:
        return None, None
    try:
        loader, file, _ = load_script(path)
    except EstimatorRuntimeError as error:
        return None, Finding(PROBLEM, "script", f"{error}; fix that line first")
    if file.endswith(".pyc"):
        text = f"{path} is compiled: give its source"
        return None, Finding(NOTE, "script", text)
    return read(loader.get_data(file)), None


def examine(
    path: str, uses: Uses, answer: Mapping[str, Any] | None
) -> Iterator[Finding]:
    """Check whether a script can train here, but for the names that it lacks.

    Args:
        path: The script.
        uses: What it uses, as `load` returns it.
        answer: The answer of `probe.ask` about its names, or None if there is none.
    """
    name = pathlib.Path(path).name
    if answer is None or versions.parse(versions.tensorflow_version()) < (2, 16):
        return
    for line in uses.tpu_lines:
        text = (
            f"{name}:{line}: use_tpu=True: training on TPUs needs TensorFlow 2.15; "
            "with use_tpu=False it trains here"
        )
        yield Finding(PROBLEM, "script", text)
    if uses.keras_names and uses.estimator_names:
        yield _keras_3(name, uses.keras_names)


def introduce(path: str, uses: Uses, modules: Sequence[tuple[str, Uses]]) -> Finding:
    """Return the finding about which Estimators a program uses.

    Args:
        path: The script.
        uses: What it uses.
        modules: The name of each of its own modules, and what that uses.
    """
    name = pathlib.Path(path).name
    facts = {"names": dict(uses.names), "modules": [each for each, _ in modules]}
    for file, its in [(name, uses), *modules]:
        if not its.estimator_names:
            continue
        names = [shown(each) for each in its.estimator_names]
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        who = "uses" if file == name else f"{file}, which it imports, uses"
        text = f"{name} can be parsed, and {who} {', '.join(names[:_SHOWN])}{more}"
        return Finding(OK, "script", text, facts)
    text = (
        f"{name} can be parsed, and names no Estimator itself; modules that it "
        "imports may"
    )
    return Finding(NOTE, "script", text, facts)


def examine_names(
    name: str,
    uses: Uses,
    answer: Mapping[str, Any] | None,
    of_version_1: Collection[str],
) -> Iterator[Finding]:
    """Check the names that a file of the program uses.

    Args:
        name: The file.
        uses: What it uses.
        answer: The answer of `probe.ask` about its names, or None if there is none.
        of_version_1: Names to leave out, as the program runs in TensorFlow 1 mode. If
            there are any, names that mean something else in it are left out too.
    """
    if answer is not None:
        yield from _missing(name, uses, answer, of_version_1)
    for line, used, difference, remedy in () if of_version_1 else find(uses):
        text = f"{name}:{line}: {shown(used)} {difference}; write {shown(remedy)}"
        yield Finding(NOTE, "script", text)


def _keras_3(name: str, used: Mapping[str, int]) -> Finding:
    """Return the finding about `import keras` in a script that uses Estimators."""
    for dotted, line in used.items():
        if dotted.startswith(_MODELS_OF_KERAS):
            # Most likely for Estimators, which could use it on TensorFlow 2.15.
            text = (
                f"{name}:{line}: {dotted} is of Keras 3 here, which Estimators "
                "cannot use; write `from tensorflow import keras`, and `from "
                "tensorflow.keras...` for `from keras...`"
            )
            return Finding(PROBLEM, "script", text)
    text = (
        f"{name}:{min(used.values())}: keras is Keras 3 here; models for an Estimator "
        "have to be of tf.keras"
    )
    return Finding(NOTE, "script", text)


def _missing(
    name: str, uses: Uses, answer: Mapping[str, Any], of_version_1: Collection[str]
) -> Iterator[Finding]:
    """Yield a problem for each name that the installed TensorFlow does not have."""
    reported = set()
    for dotted, line in uses.names.items():
        part = answer["missing"].get(dotted)
        # TensorFlow 1 has the first part of `tf.layers.nosuch`, which is no mistake.
        in_v1 = answer["missing_in_v1"].get(dotted)
        if part is not None and in_v1 is not None and len(in_v1) > len(part):
            part = in_v1
        if part is None or part in reported or dotted in of_version_1:
            continue
        reported.add(part)
        if answer["v1"].get(dotted):
            remedy = f"{_remedy(dotted, uses)}, or run it with --tf1"
        else:
            remedy = "look for its new name, or take it out"
        text = f"{name}:{line}: there is no {shown(part)} in this TensorFlow; {remedy}"
        yield Finding(PROBLEM, "script", text, {"name": dotted})


def _remedy(dotted: str, uses: Uses) -> str:
    """Return what to write instead of a name that only TensorFlow 1 has."""
    is_optimizer = dotted.startswith(_TRAIN) and dotted.endswith("Optimizer")
    canned = next((each for each in uses.names if each.startswith(_CANNED)), None)
    if is_optimizer and canned is not None:
        # One without the other fails: each takes only optimizers of its own version.
        return (
            f"write {shown(_in_v1(dotted))} together with {shown(_in_v1(canned))}, as "
            f"{shown(canned)} takes optimizers of tf.keras only; or import "
            "tensorflow.compat.v1 as tf"
        )
    return f"write {shown(_in_v1(dotted))}, or import tensorflow.compat.v1 as tf"


def _in_v1(dotted: str) -> str:
    return "tensorflow.compat.v1." + dotted.removeprefix("tensorflow.")


def shown(dotted: str) -> str:
    """Return a name as scripts write it, with "tf" for "tensorflow"."""
    first, dot, rest = dotted.partition(".")
    is_public = first == "tensorflow" and not f"{rest}.".startswith("python.")
    return f"tf{dot}{rest}" if is_public else dotted


def find_own_modules(script: str) -> list[tuple[str, Uses]]:
    """Return the files below the script's folder that it imports, and what they use.

    Imports of imported files are followed, also those inside functions. Files that
    cannot be read or parsed are left out, as the program may never import them.

    Args:
        script: Path of the script.

    Returns:
        Tuples (path relative to the script's folder, what the file uses), in the order
        in which they are found.
    """
    folder = os.path.dirname(os.path.realpath(script))
    seen = {os.path.realpath(script)}
    waiting, found = [os.path.realpath(script)], []
    while waiting:
        path = waiting.pop(0)
        try:
            with open(path, "rb") as file:
                source = file.read()
            tree = ast.parse(source)
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        if path != os.path.realpath(script):
            found.append((os.path.relpath(path, folder), read(source)))
        package = os.path.relpath(os.path.dirname(path), folder).split(os.sep)
        for each in _files(tree, folder, [p for p in package if p != os.curdir]):
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return found


def _files(tree: ast.AST, folder: str, package: list[str]) -> Iterator[str]:
    """Yield the files in `folder` that the statements of a file of `package` import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                yield from _of_module(folder, each.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            parts = node.module.split(".") if node.module else []
            if node.level:
                parts = [*package[: len(package) - node.level + 1], *parts]
            yield from _of_module(folder, parts)
            for each in node.names:
                yield from _of_module(folder, [*parts, each.name])


def _of_module(folder: str, parts: list[str]) -> Iterator[str]:
    """Yield the files of a module and of the packages that it is in."""
    for count in range(1, len(parts) + 1):
        path = os.path.join(folder, *parts[:count])
        for each in (os.path.join(path, "__init__.py"), f"{path}.py"):
            if os.path.isfile(each):
                yield os.path.realpath(each)
