"""Automatic activation: every Python process of this environment loads the runtime.

It is off until you enable it. Two small files in site-packages implement it: one that
Python executes at start-up, and the module that this one imports, which waits for the
import of TensorFlow (see `startup`). They are harmless once the package is uninstalled,
and cost nothing in a program that does not import TensorFlow.
"""

import dataclasses
import importlib.util
import os
import pathlib
import py_compile
import sysconfig
from collections.abc import Mapping

from estimator_runtime.errors import EstimatorRuntimeError

VARIABLE = "ESTIMATOR_RUNTIME_AUTO"
_MODULE = "_estimator_runtime_startup"
_SOURCE = pathlib.Path(__file__).parent / "startup" / f"{_MODULE}.py"
# Guarded, because Python prints each error of this line at every start.
_LINE = (
    "import sys; exec("
    f"'try: import {_MODULE} as s; s.watch()\\nexcept Exception: pass')\n"
)
_TF1_LINE = _LINE.replace("watch()", "watch(tf1=True)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Activation:
    """Where the files of automatic activation are, or would be.

    Attributes:
        folder: The site-packages folder of the files.
    """

    folder: pathlib.Path = dataclasses.field(
        default_factory=lambda: pathlib.Path(sysconfig.get_path("purelib"))
    )

    @property
    def line_file(self) -> pathlib.Path:
        """The file that Python executes at start-up."""
        return self.folder / "estimator_runtime_startup.pth"

    @property
    def module_file(self) -> pathlib.Path:
        """The module that `line_file` imports."""
        return self.folder / f"{_MODULE}.py"

    def is_enabled(self) -> bool:
        """Return whether both files exist."""
        return self.line_file.exists() and self.module_file.exists()

    def is_tf1(self) -> bool:
        """Return whether it is enabled with TensorFlow 1 mode."""
        return self.is_enabled() and self.line_file.read_text() == _TF1_LINE

    def enable(self, *, tf1: bool = False) -> None:
        """Write the files, or replace those of another version.

        Args:
            tf1: Whether every Python of the environment is in TensorFlow 1 mode.

        Raises:
            EstimatorRuntimeError: If the folder is not writable.
        """
        try:
            # In this order the line never runs without its module.
            self.module_file.write_text(_SOURCE.read_text())
            py_compile.compile(str(self.module_file))  # else each start would
            self.line_file.write_text(_TF1_LINE if tf1 else _LINE)
        except OSError as error:
            raise self._refused(error) from error

    def disable(self) -> None:
        """Remove the files, if they exist.

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

    def describe(self, environ: Mapping[str, str] = os.environ) -> str:
        """Return one line that states whether activation is on.

        Args:
            environ: Environment variables, which may switch it off.
        """
        if not self.is_enabled():
            return (
                f"automatic activation is off in {self.folder}: only "
                "'estimator-runtime run' and programs that call install() use this "
                "runtime"
            )
        mode = ", with TensorFlow 1 mode" if self.is_tf1() else ""
        if environ.get(VARIABLE) == "0":
            return (
                f"automatic activation is on in {self.folder}{mode}, "
                f"but {VARIABLE} is 0 in this environment, which switches it off"
            )
        return f"automatic activation is on in {self.folder}{mode}"

    def _refused(self, error: OSError) -> EstimatorRuntimeError:
        return EstimatorRuntimeError(
            f"{self.folder} cannot be changed ({error.strerror}); use a virtual "
            "environment of your own, or 'estimator-runtime run'"
        )
