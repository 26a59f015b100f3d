"""The program's source: which modules and which names of TensorFlow it needs.

The files are parsed, not run. Names of TensorFlow are resolved from the imports, by
their full path. Names and imports that the program guards itself are left out: those in
a `try` that handles an exception, in an `if` about a version, a platform or type
checking, and those that it looks up with `hasattr`.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib.util
import itertools
import os
from collections.abc import Iterator, Mapping

from estimator_runtime.cli.script import load_script
from estimator_runtime.errors import EstimatorRuntimeError

_ROOTS = {"tensorflow", "tensorflow_estimator"}
# Words in the names of a condition that guards what depends on it.
_GUARDS = {"version", "platform", "py2", "py3", "checking"}


@dataclasses.dataclass(kw_only=True)
class Source:
    """A file of the program. Each name has the first line that needs it.

    Attributes:
        file: Its path, relative to the folder of the script.
        names: Names of TensorFlow, such as "tensorflow.estimator.RunConfig".
        modules: Modules that it imports when the program starts.
        changes_path: Whether it uses `sys.path`.
    """

    file: str
    names: dict[str, int] = dataclasses.field(default_factory=dict)
    modules: dict[str, int] = dataclasses.field(default_factory=dict)
    changes_path: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A script and its own modules.

    Attributes:
        folder: The folder of the script, which Python searches for modules first.
        sources: The script, then the modules that it imports from its folder, or from
            a package in the parent folder.
    """

    folder: str
    sources: tuple[Source, ...]


def read_program(path: str) -> Program:
    """Read a script and its own modules.

    Imports of imported files are followed, also those inside functions. Files that
    cannot be parsed are left out, as the program may never import them.

    Raises:
        UsageError: If the script cannot be read.
        EstimatorRuntimeError: If it cannot be parsed, or is compiled.
    """
    load_script(path)  # its errors name the line
    script = os.path.realpath(path)
    folder = os.path.dirname(script)
    sources, seen = [], set()
    # Modules by name, and whether they are imported when the program starts.
    modules = [("", True)]
    for module, is_eager in modules:  # which grows
        file = _file(module, folder) if module else script
        if file is None or file in seen:
            continue
        seen.add(file)
        is_package = file.endswith(f"{os.sep}__init__.py")
        package = module if is_package else module.rpartition(".")[0]
        try:
            with open(file, "rb") as opened:
                tree = ast.parse(opened.read())
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue
        source = Source(file=os.path.relpath(file, folder))
        imports = _Reader(source, package, is_eager).read(tree)
        sources.append(source)
        modules += [(n, is_eager and now) for n, now in imports.items()]
    if not sources:
        raise EstimatorRuntimeError(f"{path} is compiled; name its source")
    return Program(folder=folder, sources=tuple(sources))


def _file(module: str, folder: str) -> str | None:
    """Return the file of one of the program's own modules, or None."""
    parts = module.split(".")
    roots = [folder]
    if is_package_beside(parts[0], folder):
        roots.append(os.path.dirname(folder))
    for root in roots:
        path = os.path.join(root, *parts)
        for each in (os.path.join(path, "__init__.py"), f"{path}.py"):
            if os.path.isfile(each):
                return os.path.realpath(each)
    return None


def is_package_beside(name: str, folder: str) -> bool:
    """Return whether a folder itself, or a package beside it, has this name."""
    path = os.path.join(os.path.dirname(folder), name)
    is_package = os.path.isfile(os.path.join(path, "__init__.py"))
    return is_package or (name == os.path.basename(folder) and os.path.isdir(path))


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that an absolute import binds, each with what it stands for."""
    if isinstance(node, ast.Import):
        for each in node.names:
            first = each.name.partition(".")[0]
            yield each.asname or first, each.name if each.asname else first
    elif isinstance(node, ast.ImportFrom) and not node.level:
        for each in node.names:
            yield each.asname or each.name, f"{node.module}.{each.name}"


def _meanings(tree: ast.AST) -> dict[str, str]:
    """Return which name of a file stands for which name of TensorFlow.

    A name that is also bound in another way, such as by `tf = tf.compat.v1`, is
    ambiguous and left out.
    """
    found: dict[str, set[str]] = {}
    bound = set()
    for node in ast.walk(tree):
        for name, meaning in _imported(node):
            found.setdefault(name, set()).add(meaning)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return {
        name: next(iter(meanings))
        for name, meanings in found.items()
        if len(meanings) == 1 and name not in bound
    }


class _Reader(ast.NodeVisitor):
    """Collects what a file needs.

    Args:
        source: Gets what is collected.
        package: The package of the file, for its relative imports.
        is_eager: Whether the file is imported when the program starts.
    """

    def __init__(self, source: Source, package: str, is_eager: bool) -> None:
        self._source, self._package, self._is_eager = source, package, is_eager
        self._meanings: Mapping[str, str] = {}
        self._guards = self._functions = 0
        self._provided: set[str] = set()  # names that the file sets or looks up itself
        # Absolute names of what it imports, to whether it does when imported itself.
        self._imports: dict[str, bool] = {}

    def read(self, tree: ast.AST) -> Mapping[str, bool]:
        """Collect from a parsed file.

        Returns:
            The absolute names that it imports, each with whether it does so when it is
            imported itself.
        """
        self._meanings = _meanings(tree)
        self.visit(tree)
        self._source.names = {
            name: line
            for name, line in sorted(
                self._source.names.items(), key=lambda item: item[1]
            )
            if not any(f"{name}.".startswith(f"{each}.") for each in self._provided)
        }
        return self._imports

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            self._import(each.name, node.lineno)
            self._need(each.name, node.lineno)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            with contextlib.suppress(ImportError):  # it leads out of the package
                name = "." * node.level + module
                module = importlib.util.resolve_name(name, self._package)
        self._import(module, None if node.level else node.lineno)
        for each in node.names:
            name = module if each.name == "*" else f"{module}.{each.name}"
            self._import(name, None)
            if not node.level:
                self._need(name, node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        dotted = self._dotted(node)
        if dotted is None:
            self.generic_visit(node)
        elif not isinstance(node.ctx, ast.Load):
            self._provided.add(dotted)
        elif f"{dotted}.".startswith("sys.path."):
            self._source.changes_path = True
        else:
            self._need(dotted, node.lineno)

    def visit_Call(self, node: ast.Call) -> None:
        match node:
            case ast.Call(ast.Name("hasattr"), [owner, ast.Constant(str(name))]):
                if dotted := self._dotted(owner):
                    self._provided.add(f"{dotted}.{name}")
        self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        self._visit(node, guards=bool(node.handlers))

    visit_TryStar = visit_Try  # `except*`, of Python 3.11

    def visit_If(self, node: ast.If) -> None:
        names = (
            str(getattr(each, "id", getattr(each, "attr", "")))
            for each in ast.walk(node.test)
        )
        words = {word for name in names for word in name.lower().split("_")}
        self._visit(node, guards=not words.isdisjoint(_GUARDS))

    def visit_FunctionDef(self, node: ast.AST) -> None:
        self._visit(node, functions=1)

    visit_AsyncFunctionDef = visit_FunctionDef

    def _visit(self, node: ast.AST, guards: int = 0, functions: int = 0) -> None:
        """Visit what is in a node, which may be guarded by it or be in a function."""
        self._guards += guards
        self._functions += functions
        self.generic_visit(node)
        self._guards -= guards
        self._functions -= functions

    def _import(self, module: str, line: int | None) -> None:
        """Note that the file imports a module, or with no line, that it may do so."""
        is_needed = not self._guards and not self._functions
        packages = itertools.accumulate(module.split("."), "{}.{}".format)
        for each in packages:
            self._imports.setdefault(each, is_needed)
        if is_needed and self._is_eager and line is not None:
            self._source.modules.setdefault(module, line)

    def _need(self, dotted: str, line: int) -> None:
        if not self._guards and dotted.partition(".")[0] in _ROOTS:
            self._source.names.setdefault(dotted, line)

    def _dotted(self, node: ast.expr) -> str | None:
        """Return the full path of an imported name, or None for any other."""
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._meanings:
            return None
        return ".".join([self._meanings[node.id], *reversed(parts)])
