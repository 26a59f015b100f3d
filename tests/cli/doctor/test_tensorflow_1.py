"""What doctor says of programs for TensorFlow 1, from their names alone."""

import textwrap

import pytest

from estimator_runtime.cli.doctor import script, tensorflow_1
from estimator_runtime.tf1.contrib import wheel


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
    tf.contrib.kafka.KafkaDataset()
"""
WRITTEN = (
    "problem",
    "script",
    "train.py:3: written for TensorFlow 1 (tf.contrib.slim, tf.Session, "
    "tf.contrib.data.map_and_batch and 2 more): run it with --tf1",
)
GONE = (
    "problem",
    "script",
    "train.py:7: tf.contrib.kafka is gone: use the package tensorflow-io",
)


def examined():
    found = tensorflow_1.examine([("train.py", read(OLD))], answer("Session"), False)
    return [(each.state, each.about, each.text) for each in found]


def test_a_program_with_contrib_is_told_how_to_install_the_original(monkeypatch):
    monkeypatch.setattr(wheel, "find", lambda: None)
    assert examined() == [
        WRITTEN,
        GONE,
        (
            "problem",
            "tf.contrib",
            "train.py:3: tf.contrib.slim and 2 more need the original tf.contrib, which "
            "is not installed; install it with: estimator-runtime tf1 install",
        ),
    ]


def test_the_original_that_is_installed_is_named(monkeypatch, tmp_path):
    (tmp_path / "LICENSE").touch()
    monkeypatch.setenv(wheel.FOLDER_VARIABLE, str(tmp_path))
    note = ("note", "tf.contrib", f"TensorFlow 1.15.5's, in {tmp_path}")
    assert examined() == [WRITTEN, GONE, note]


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
