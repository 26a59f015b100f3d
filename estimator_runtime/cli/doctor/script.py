"""Static analysis of a script: which names of TensorFlow it uses. Nothing is run.

Names are resolved from the imports of TensorFlow, by their full path. Imports of the
script's own modules are not followed. The analysis finds names that TensorFlow 2 lacks,
and some names that TensorFlow 2 has with another meaning: a script that uses those
starts, and then trains differently than before or fails on the way.
"""

import ast
import dataclasses
import re
from collections.abc import Iterator

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
    """

    names: dict[str, int]
    methods: dict[str, int]
    by_position: dict[str, int]
    tpu_lines: tuple[int, ...]
    keras_names: dict[str, int]

    @property
    def estimator_names(self) -> tuple[str, ...]:
        """The names in `names` that belong to Estimators."""
        return tuple(
            each for each in self.names if _OF_ESTIMATORS.intersection(each.split("."))
        )


def read(source: str | bytes) -> Uses:
    """Return what a script uses.

    Args:
        source: The text of a script that can be parsed.
    """
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

    Args:
        uses: What the script uses.

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
                "is no method of a dataset of TensorFlow 2",
                f"tensorflow.compat.v1.data.{method}(dataset), or return the dataset "
                "itself from the input_fn",
            )
