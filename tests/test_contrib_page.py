"""docs/contrib.md is what the tables of names say."""

import importlib.util
import pathlib

from estimator_runtime.contrib import names

SCRIPT = pathlib.Path(__file__).parents[1] / "docs" / "contrib.py"


def _generator():
    spec = importlib.util.spec_from_file_location("contrib_page", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_tables_say():
    generator = _generator()
    written = generator.PAGE.read_text()
    assert written == generator.page(), "docs/contrib.md is old; run: nox -s reference"


def test_the_page_has_each_name_and_a_row_as_it_should_be():
    page = _generator().PAGE.read_text()
    tables = (names.AVAILABLE, names.MISSING, names.ALIASES)
    assert [n for table in tables for n in table if f"`{n}`" not in page] == []
    assert (
        "| `opt.AdamWOptimizer`, `opt.DecoupledWeightDecayExtension`, "
        "`opt.LazyAdamOptimizer`, `opt.MomentumWOptimizer`, "
        "`opt.MovingAverageOptimizer`, `opt.extend_with_decoupled_weight_decay` | "
        "this package: `estimator_runtime.contrib.opt` |\n"
    ) in page
    assert (
        "| `learn.SKCompat` | trained on arrays | "
        "tf.estimator.inputs.numpy_input_fn with an Estimator |\n"
    ) in page
