"""Automatic activation: every python of this environment has the runtime, if asked to.

Two small files in site-packages do it: one that python's start-up executes, and the
module it imports, which waits for TensorFlow (see `startup`). They stay harmless when
the package is uninstalled, and cost a program that imports no TensorFlow nothing.
"""

import dataclasses
import importlib.util
import os
import pathlib
import py_compile
import sysconfig

from estimator_runtime.errors import EstimatorRuntimeError

VARIABLE = "ESTIMATOR_RUNTIME_AUTO"
_MODULE = "_estimator_runtime_startup"
_SOURCE = pathlib.Path(__file__).parent / "startup" / f"{_MODULE}.py"
# Guarded: what fails here is printed at each start of python.
_LINE = (
    "import sys; exec("
    f"'try: import {_MODULE} as s; s.watch()\\nexcept Exception: pass')\n"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Activation:
    """Where the files of automatic activation are, or would be.

    Attributes:
        folder: The site-packages folder they belong to.
    """

    folder: pathlib.Path = dataclasses.field(
        default_factory=lambda: pathlib.Path(sysconfig.get_path("purelib"))
    )

    @property
    def line_file(self):
        """The file that python's start-up executes."""
        return self.folder / "estimator_runtime_startup.pth"

    @property
    def module_file(self):
        """The module that it imports."""
        return self.folder / f"{_MODULE}.py"

    def is_enabled(self):
        """Tell whether both files are there."""
        return self.line_file.exists() and self.module_file.exists()

    def enable(self):
        """Write the files, or renew those of another version.

        Raises:
            EstimatorRuntimeError: If the folder cannot be written.
        """
        try:
            # In this order there is no moment in which the line finds no module.
            self.module_file.write_text(_SOURCE.read_text())
            py_compile.compile(str(self.module_file))  # not anew at each start
            self.line_file.write_text(_LINE)
        except OSError as error:
            raise self._refused(error) from error

    def disable(self):
        """Remove the files; does nothing where there are none.

        Raises:
            EstimatorRuntimeError: If they cannot be removed.
        """
        try:
            self.line_file.unlink(missing_ok=True)
            self.module_file.unlink(missing_ok=True)
            compiled = importlib.util.cache_from_source(str(self.module_file))
            pathlib.Path(compiled).unlink(missing_ok=True)
        except OSError as error:
            raise self._refused(error) from error

    def describe(self, environ=os.environ):
        """Say in one line whether it is on, here and in this environment."""
        if not self.is_enabled():
            return f"automatic activation is off in {self.folder}"
        if environ.get(VARIABLE) == "0":
            return (
                f"automatic activation is on in {self.folder}, "
                f"but {VARIABLE} is 0 in this environment, which switches it off"
            )
        return f"automatic activation is on in {self.folder}"

    def _refused(self, error):
        return EstimatorRuntimeError(
            f"{self.folder} cannot be changed ({error.strerror}); use a virtual "
            "environment of your own, or 'estimator-runtime run'"
        )
