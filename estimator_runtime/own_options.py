"""What a RunConfig of this runtime has beyond TensorFlow's."""

from estimator_runtime.options import CHECKS, TrainingOptions


class OwnOptions:
    """The options that are given to a RunConfig; the rest the environment has."""

    _own_options: dict = {}  # noqa: RUF012 (never changed: each config gets its own)

    @property
    def training_options(self):
        """`TrainingOptions` of the sessions that train with this config."""
        return TrainingOptions.from_environ(**self._own_options)

    @property
    def loop(self) -> str:
        """What runs the steps: "auto", "plans" or "stock"."""
        return self.training_options.loop

    @property
    def steps_per_run(self):
        """The most training steps in one call of the session: 1 or more, or "auto"."""
        return self.training_options.steps_per_run

    @property
    def async_checkpoint(self):
        """Whether training goes on while a checkpoint is written."""
        return self.training_options.async_checkpoint

    @property
    def keep_best(self):
        """How many of the best checkpoints are kept beside the newest."""
        return self.training_options.keep_best

    @property
    def best_metric(self):
        """Name of the metric that says which checkpoints are the best, or None."""
        return self.training_options.best_metric

    @property
    def best_mode(self):
        """Whether "max" or "min" of it is better, or None if that is not said."""
        return self.training_options.best_mode

    @property
    def progress(self):
        """How progress is shown."""
        return self.training_options.progress

    def _set_options(self, options):
        """Set options by name; None leaves one to the command and the environment."""
        for name, value in options.items():
            if value is not None:
                CHECKS[name](value, f"RunConfig: {name}")
        merged = {**self._own_options, **options}
        own = {n: v for n, v in merged.items() if v is not None}
        TrainingOptions.from_environ(**own)  # refuses what does not go together
        self._own_options = own
