"""The command that runs a module of this package in a separate process."""

import pathlib
import sys

# The folder that Python puts before the standard library in a helper process.
FIRST_FOLDER = str(pathlib.Path(__file__).parent / "startup")


def helper_command(module: str, *arguments: str) -> list[str]:
    """Return a command that calls `main([*arguments])` of a module of this package.

    Nothing is imported from the current folder of the command, which `python -m` would
    search first. A program that this process then runs with `script` has the same
    sys.path as with plain Python.

    Args:
        module: Full name of the module. The result of its `main` is the exit status of
            the process.
        *arguments: The arguments of `main`.
    """
    return [sys.executable, f"{FIRST_FOLDER}/run_helper.py", module, *arguments]
