"""The command that runs a module of this package as a process of its own."""

import pathlib
import sys

# What Python puts in front of the standard library in a helper process.
FIRST_FOLDER = str(pathlib.Path(__file__).parent / "startup")


def helper_command(module: str, *arguments: str) -> list[str]:
    """Return a command that calls `main([*arguments])` of a module of this package.

    Nothing is imported from the folder in which the command runs, which `python -m`
    would search first. A program that this process then runs with `script` has the
    sys.path that plain Python gives it.

    Args:
        module: Full name of the module; the process ends with what its `main` returns.
        *arguments: The arguments.
    """
    return [sys.executable, f"{FIRST_FOLDER}/run_helper.py", module, *arguments]
