"""A patch of the frozen RunConfig, from which TPU configs derive."""

import functools
import inspect
from types import ModuleType
from typing import Any

from estimator_runtime.checkpoint import interval
from estimator_runtime.config.options import OwnOptions
from estimator_runtime.patching.frozen import StockRunConfig


def patch(_module: ModuleType) -> None:
    """Make configs of the frozen class use the environment's checkpoint overhead."""
    original = StockRunConfig.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if not isinstance(self, OwnOptions):
            given = signature.bind(self, *args, **kwargs).arguments
            kwargs.update(interval.of_run_config(given, None))
        original(self, *args, **kwargs)

    StockRunConfig.__init__ = init
