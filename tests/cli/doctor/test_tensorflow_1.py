"""What doctor says of programs for TensorFlow 1, from their names alone."""

import sys
import textwrap
import types

import pytest

from estimator_runtime.cli.doctor import script, tensorflow_1
from estimator_runtime.tf1 import contrib_names

TABLES = types.SimpleNamespace(
    AVAILABLE={
        "data.map_and_batch": "tensorflow.compat.v1:data.experimental.map_and_batch",
        "slim": "package_that_is_not_installed",
    },
    ALIASES={},
    MISSING={"data.stats": "it was removed; use tf.profiler"},
)


@pytest.fixture(autouse=True)
def tables(monkeypatch):
    monkeypatch.setitem(sys.modules, "estimator_runtime.contrib.names", TABLES)
    contrib_names._parents.cache_clear()
    yield
    contrib_names._parents.cache_clear()


def read(source):
    return script.read(textwrap.dedent(source))


def answer(*v1):
    """Return the answer of a TensorFlow without these names, and without contrib."""
    names = [f"tensorflow.{each}" for each in v1]

    class Missing(dict):
        def get(self, name, default=None):
            is_contrib = name.startswith("tensorflow.contrib")
            return "tensorflow.contrib" if is_contrib else super().get(name, default)

        def __contains__(self, name):
            return self.get(name) is not None

    return {
        "missing": Missing({n: n for n in names}),
        "v1": dict.fromkeys(names, True),
        "missing_in_v1": {},
    }


OLD = """
    import tensorflow as tf
    from tensorflow.contrib import slim
    tf.Session()
    tf.contrib.data.map_and_batch()
    slim.conv2d()
    slim.fully_connected()
    tf.contrib.data.stats()
"""


def test_a_program_with_contrib_is_led_to_tf1_and_each_member_to_what_it_is():
    found = tensorflow_1.examine([("train.py", read(OLD))], answer("Session"), False)
    assert [(each.state, each.text) for each in found] == [
        (
            "problem",
            "train.py:3: written for TensorFlow 1 (tf.Session, "
            "tf.contrib.data.map_and_batch, tf.contrib.slim.conv2d and 2 more): run it "
            "with --tf1",
        ),
        (
            "note",
            "train.py:5: with --tf1, tf.contrib.data.map_and_batch is "
            "tf.compat.v1.data.experimental.map_and_batch",
        ),
        (
            "note",
            "train.py:6: with --tf1, tf.contrib.slim.conv2d is "
            "package_that_is_not_installed.conv2d",
        ),
        (
            "problem",
            "train.py:6: that needs package_that_is_not_installed, which is not "
            "installed; pip install package-that-is-not-installed",
        ),
        (
            "note",
            "train.py:7: with --tf1, tf.contrib.slim.fully_connected is "
            "package_that_is_not_installed.fully_connected",
        ),
        (
            "problem",
            "train.py:8: --tf1 has no tf.contrib.data.stats; it was removed; use "
            "tf.profiler",
        ),
    ]


def test_where_the_mode_is_on_its_names_are_no_problem():
    uses = read("import tensorflow as tf\ntf.Session()")
    [found] = tensorflow_1.examine([("train.py", uses)], answer("Session"), True)
    assert (found.state, found.text) == (
        "note",
        "train.py:2: written for TensorFlow 1 (tf.Session), and --tf1 is on",
    )


@pytest.mark.parametrize(
    "names, is_old",
    [
        (["tensorflow.Session"], False),
        (["tensorflow.contrib.layers.flatten"], True),
        ([f"tensorflow.{each}" for each in ("Session", "app", "flags", "gfile")], True),
    ],
)
def test_few_names_do_not_make_a_program_one_of_tensorflow_1(names, is_old):
    assert tensorflow_1.is_written_for_it(names) == is_old


def test_a_private_name_that_the_mode_restores_is_of_tensorflow_1():
    uses = read("from tensorflow.python.framework import ops\nops.Tensor\nops.Oracle")
    names = [f"tensorflow.python.framework.ops.{n}" for n in ("Tensor", "Oracle")]
    lacks = {"missing": {name: name for name in names}, "v1": {}, "missing_in_v1": {}}
    assert tensorflow_1.of_version_1(uses, lacks) == names[:1]


def test_an_optimizer_of_version_1_is_advised_together_with_its_estimator():
    uses = read(
        """
        import tensorflow as tf
        tf.estimator.DNNClassifier([4], [], optimizer=tf.train.AdamOptimizer(0.1))
        """
    )
    [found] = script.examine_names(
        "train.py", uses, answer("train.AdamOptimizer"), of_version_1=()
    )
    assert found.text == (
        "train.py:3: there is no tf.train.AdamOptimizer in this TensorFlow; write "
        "tf.compat.v1.train.AdamOptimizer together with "
        "tf.compat.v1.estimator.DNNClassifier, as tf.estimator.DNNClassifier takes "
        "optimizers of tf.keras only; or import tensorflow.compat.v1 as tf, or run it "
        "with --tf1"
    )


def test_a_summary_of_version_1_needs_no_change_where_the_mode_runs_it():
    uses = read("import tensorflow as tf\ntf.summary.scalar('a', 1)")
    assert len(list(script.examine_names("a.py", uses, answer(), ()))) == 1
    assert list(script.examine_names("a.py", uses, answer(), {"tensorflow.app"})) == []


def test_the_own_modules_that_a_script_imports_are_found_and_no_others(tmp_path):
    files = {
        "train.py": "import os, model.modeling\nfrom model import inputs\nimport util",
        "model/__init__.py": "",
        "model/modeling.py": "from . import layers\nfrom ..above import x",
        "model/layers.py": "import tensorflow as tf\ntf.contrib.layers.flatten",
        "model/inputs.py": "def f():\n    import late",
        "late.py": "import train",
        "util.py": "print 'Python 2'",
        "unused.py": "import tensorflow as tf",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = dict(script.find_own_modules(str(tmp_path / "train.py")))
    assert list(found) == [
        "model/__init__.py",
        "model/modeling.py",
        "model/inputs.py",
        "model/layers.py",
        "late.py",
    ]
    assert "tensorflow.contrib.layers.flatten" in found["model/layers.py"].names


def test_a_script_whose_modules_name_estimators_says_which(tmp_path):
    uses, other = read("import model"), read("from tensorflow import estimator as e")
    found = script.introduce("train.py", uses, [("model.py", other)])
    assert (found.state, found.text) == (
        "ok",
        "train.py can be parsed, and model.py, which it imports, uses tf.estimator",
    )
