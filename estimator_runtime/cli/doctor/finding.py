"""`Subject`, what a check of `doctor` looks at, and `Finding`, what it returns."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Mapping

from estimator_runtime.cli import run_flags
from estimator_runtime.cli.doctor import probe, source
from estimator_runtime.config.tf_config import TFConfig, check_form
from estimator_runtime.errors import EstimatorRuntimeError
from estimator_runtime.tf_internals import versions

OK, NOTE, PROBLEM = "ok", "note", "problem"


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check.

    Attributes:
        state: "ok"; "note" for something worth knowing; "problem" if a training would
            not start, or would not do what it should.
        text: One line. The line of a problem includes the remedy.
    """

    state: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Subject:
    """The training that is examined. What several checks need is computed once.

    Attributes:
        environ: The environment of the training.
        script: Path of its script, or None.
        model_dir: The model directory that the command line names, or None.
    """

    environ: Mapping[str, str]
    script: str | None = None
    model_dir: str | None = None

    @functools.cached_property
    def config(self) -> TFConfig:
        """TF_CONFIG as `run` reads it.

        Raises:
            ConfigError: If it is invalid.
        """
        check_form(self.environ)
        # Only the script knows whether it needs a chief.
        return TFConfig.from_environ(self.environ, chief_required=False)

    @functools.cached_property
    def program(self) -> source.Program | None:
        """The script and its own modules, or None without a script.

        Raises:
            EstimatorRuntimeError: If the script cannot be parsed.
        """
        return None if self.script is None else source.read_program(self.script)

    @functools.cached_property
    def tensorflow(self) -> probe.ProbeResult | EstimatorRuntimeError | None:
        """What TensorFlow says, or why it cannot be imported.

        None if the packages or the settings do not allow that.
        """
        try:
            versions.check_installed()
            run_flags.check(self.environ)
        except EstimatorRuntimeError:
            return None
        names, folder = set(), None
        with contextlib.suppress(EstimatorRuntimeError):  # a finding about the script
            if self.program is not None:
                names = {each for file in self.program.sources for each in file.names}
                folder = self.program.folder
        try:
            return probe.ask(sorted(names), folder)
        except EstimatorRuntimeError as error:
            return error
