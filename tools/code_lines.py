"""Print how many lines of code each folder of the package has.

Blank lines, comments and docstrings do not count.

    python tools/code_lines.py        # the package
    python tools/code_lines.py tests  # another folder
"""

import ast
import collections
import io
import pathlib
import sys
import tokenize

_PACKAGE = "estimator_runtime"
# TensorFlow 1 programs: counted apart from the core.
_TF1 = ("contrib", "tf1")
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
_HAVE_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def count(source: str) -> int:
    """Return the number of lines of a module that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, _HAVE_DOCSTRINGS) and ast.get_docstring(node) is not None:
            first = node.body[0]
            lines.difference_update(range(first.lineno, (first.end_lineno or 0) + 1))
    return len(lines)


def main(root: str = _PACKAGE) -> None:
    """Print a line for each folder or module directly in `root`, and the sums."""
    found: collections.Counter[str] = collections.Counter()
    for path in sorted(pathlib.Path(root).rglob("*.py")):
        found[path.relative_to(root).parts[0]] += count(path.read_text())
    for name in sorted(found):
        print(f"{found[name]:7,} {name}")
    total = found.total()
    if root == _PACKAGE:
        tf1 = sum(found[name] for name in _TF1)
        print(f"{total - tf1:7,} the core\n{tf1:7,} tf1, with contrib")
    print(f"{total:7,} all")


if __name__ == "__main__":
    main(*sys.argv[1:])
