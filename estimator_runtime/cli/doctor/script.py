"""What a script says of TensorFlow, read from its text: nothing of it is run.

Only what stands there is looked at: names reached from an import of TensorFlow, by
their whole path. What a script imports from other files of its own is not followed.
"""

import ast
import dataclasses

_ROOTS = ("tensorflow", "tensorflow_estimator", "keras")
# Names of modules, whichever package they are in.
_OF_ESTIMATORS = {"estimator", "tpu_estimator", "tpu_config"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Uses:
    """Names and lines found in a script.

    Attributes:
        names: Dotted name, such as "tensorflow.estimator.RunConfig", to the first line
            that needs it. Those that a `try`, or an `if` about versions, guards are
            not among them.
        methods: Name of a method that is called on anything but a name of TensorFlow
            to the first line that does; not under a guard either.
        by_position: Name of TensorFlow to the first line that calls it with two
            arguments or more that have no names; not under a guard either.
        tpu_lines: Lines that pass use_tpu=True.
        keras_names: Names of keras itself, such as "keras.layers.Dense", to the first
            line that needs each; not under a guard either.
    """

    names: dict[str, int]
    methods: dict[str, int]
    by_position: dict[str, int]
    tpu_lines: tuple[int, ...]
    keras_names: dict[str, int]

    @property
    def estimator_names(self):
        """Those of `names` that lead to Estimators."""
        return tuple(
            each for each in self.names if _OF_ESTIMATORS.intersection(each.split("."))
        )


def read(source):
    """Find what a script uses.

    Args:
        source: The text of a script that can be parsed, as str or bytes.
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
    """Finds which name of the script stands for which module."""

    def __init__(self):
        self._found = {}
        self._bound = set()

    def meanings(self):
        # What is bound otherwise too, such as by tf = tf.compat.v1, could be either.
        return {
            name: next(iter(dotted))
            for name, dotted in self._found.items()
            if len(dotted) == 1 and name not in self._bound
        }

    def visit_Import(self, node):
        for each in node.names:
            if each.name.partition(".")[0] in _ROOTS:
                name = each.asname or each.name.partition(".")[0]
                meaning = each.name if each.asname else name
                self._found.setdefault(name, set()).add(meaning)

    def visit_ImportFrom(self, node):
        if node.level == 0 and (node.module or "").partition(".")[0] in _ROOTS:
            for each in node.names:
                meaning = f"{node.module}.{each.name}"
                self._found.setdefault(each.asname or each.name, set()).add(meaning)

    def visit_Name(self, node):
        if not isinstance(node.ctx, ast.Load):
            self._bound.add(node.id)

    def visit_arg(self, node):
        self._bound.add(node.arg)
        self.generic_visit(node)


class _Names(ast.NodeVisitor):
    """Finds the dotted names that a script needs, outside of guards."""

    def __init__(self, meanings):
        self._meanings = meanings
        self._guards = 0
        self.found = {}
        self.stored = set()
        self.methods = {}
        self.by_position = {}
        self.tpu_lines = []

    def visit_Import(self, node):
        for each in node.names:
            self._need(each.name, node.lineno)

    def visit_ImportFrom(self, node):
        if node.level == 0 and node.module:
            for each in node.names:
                star = each.name == "*"
                name = node.module if star else f"{node.module}.{each.name}"
                self._need(name, node.lineno)

    def visit_Attribute(self, node):
        dotted = self._dotted(node)
        if dotted is None:
            self.generic_visit(node)
        elif isinstance(node.ctx, ast.Load):
            self._need(dotted, node.lineno)
        else:
            self.stored.add(dotted)

    def visit_Call(self, node):
        for each in node.keywords:
            is_true = isinstance(each.value, ast.Constant) and each.value.value is True
            if each.arg == "use_tpu" and is_true:
                self.tpu_lines.append(node.lineno)
        if isinstance(node.func, ast.Attribute) and not self._guards:
            dotted, line = self._dotted(node.func), node.func.end_lineno or 0
            if dotted is None:  # of a chain of calls, the last one is met first
                name = node.func.attr
                self.methods[name] = min(line, self.methods.get(name, line))
            elif len(node.args) > 1:
                self.by_position.setdefault(dotted, line)
        self.generic_visit(node)

    def visit_Try(self, node):
        self._visit(node, guards=bool(node.handlers))

    def visit_If(self, node):
        text = ast.unparse(node.test).lower()
        self._visit(node, guards="hasattr" in text or "version" in text)

    def _visit(self, node, guards):
        self._guards += guards
        self.generic_visit(node)
        self._guards -= guards

    def _need(self, dotted, line):
        if not self._guards and dotted.partition(".")[0] in _ROOTS:
            self.found.setdefault(dotted, line)

    def _dotted(self, node):
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._meanings:
            return None
        return ".".join([self._meanings[node.id], *reversed(parts)])
