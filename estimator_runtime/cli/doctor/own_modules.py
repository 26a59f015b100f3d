"""The modules beside a script that it imports, found without running anything."""

import ast
import os
from collections.abc import Iterator

from estimator_runtime.cli.doctor.script import Uses, read


def find(script: str) -> list[tuple[str, Uses]]:
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
