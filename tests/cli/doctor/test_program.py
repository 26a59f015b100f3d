"""What doctor says about the source of a program, on a TensorFlow that is made up."""

import textwrap

import pytest

from estimator_runtime.cli.doctor.finding import Subject
from estimator_runtime.cli.doctor.probe import ProbeResult
from estimator_runtime.cli.doctor.script import check_script
from estimator_runtime.cli.doctor.source import read_program
from estimator_runtime.tf1.contrib import wheel


@pytest.fixture
def write(tmp_path):
    def write(source, files=()):
        for name, text in {"train.py": source, **dict(files)}.items():
            path = tmp_path / "app" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return str(tmp_path / "app" / "train.py")

    return write


@pytest.fixture
def names(write):
    def names(source):
        return dict(read_program(write(source)).sources[0].names)

    return names


def answer(missing=(), of_version_1=(), lacking=()):
    of_version_1 = {**dict.fromkeys(of_version_1, ""), **dict(lacking)}
    return ProbeResult(
        devices=[],
        cuda=None,
        loaded=[],
        missing={each: each for each in (*missing, *of_version_1)},
        of_version_1=of_version_1,
        patches={},
        report="",
    )


def check(script, answered=None, **environ):
    class Asked(Subject):
        tensorflow = answered or answer()

    found = check_script(Asked(environ=environ, script=script))
    return [(each.state, each.text) for each in found][1:]


@pytest.mark.parametrize(
    "source, expected",
    [
        ("import tensorflow as tf\ntf.estimator.RunConfig()", {"tensorflow": 1, "tensorflow.estimator.RunConfig": 2}),
        ("import tensorflow\n\ntensorflow.Session()", {"tensorflow": 1, "tensorflow.Session": 3}),
        ("import tensorflow.compat.v1 as tf\ntf.Session()", {"tensorflow.compat.v1": 1, "tensorflow.compat.v1.Session": 2}),
        ("from tensorflow import estimator as e\ne.Estimator", {"tensorflow.estimator": 1, "tensorflow.estimator.Estimator": 2}),
        ("from tensorflow.compat.v1 import *", {"tensorflow.compat.v1": 1}),
        ("import tensorflow.keras as keras", {"tensorflow.keras": 1}),
        ("import numpy as np\nnp.zeros(3)", {}),
        ("from .tensorflow import estimator", {}),
    ],
)  # fmt: skip
def test_names_are_followed_from_the_import_to_their_first_line(
    names, source, expected
):
    assert names(source) == expected


@pytest.mark.parametrize(
    "guarded",
    [
        "try:\n    tf.Session\nexcept AttributeError:\n    pass",
        "if hasattr(tf, 'Session'):\n    tf.Session()",
        "if tf.__version__ < '2':\n    tf.Session()",
        "tf.Session = tf.compat.v1.Session\ntf.Session()",
        "def f(tf): return tf.Session()",
        "import tensorflow.compat.v1 as tf\ntf.Session()",
    ],
)
def test_a_name_that_the_program_guards_or_gives_another_meaning_is_not_needed(
    names, guarded
):
    assert "tensorflow.Session" not in names(f"import tensorflow as tf\n{guarded}")


def test_the_own_modules_that_a_script_imports_are_read_and_no_others(write):
    script = write(
        "import os, model.modeling\nfrom model import inputs\nimport util, lib.api, no_package.api",
        {
            "model/__init__.py": "",
            "model/modeling.py": "from . import layers\nfrom ..above import x",
            "model/layers.py": "import tensorflow as tf\ntf.contrib.layers.flatten",
            "model/inputs.py": "def f():\n    import late",
            "late.py": "import train",
            "util.py": "print 'Python 2'",
            "unused.py": "import tensorflow as tf",
            "../lib/__init__.py": "",
            "../lib/api.py": "",
            "../no_package/api.py": "",
        },
    )
    sources = {each.file: each for each in read_program(script).sources}
    assert sorted(sources) == [
        "../lib/__init__.py",
        "../lib/api.py",
        "late.py",
        "model/__init__.py",
        "model/inputs.py",
        "model/layers.py",
        "model/modeling.py",
        "train.py",
    ]
    assert sources["model/layers.py"].names["tensorflow.contrib.layers.flatten"] == 2


def test_a_module_that_is_not_installed_is_a_problem_with_the_line_that_imports_it(
    write,
):
    script = write(
        """
        import json, no_such_module.part
        import model
        from no_such_namespace import x
        def later():
            import no_such_extra
        """,
        {
            "model.py": "import os.path\nimport no_such_dependency\nimport no_such_module"
        },
    )
    assert check(script) == [
        (
            "problem",
            f"{place}: there is no module {name} here; install the package that has it",
        )
        for place, name in [
            ("train.py:2", "no_such_module.part"),
            ("train.py:4", "no_such_namespace"),
            ("model.py:2", "no_such_dependency"),
        ]
    ]


@pytest.mark.parametrize(
    "source",
    [
        "try:\n    import no_such_module\nexcept ImportError:\n    pass",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import no_such_module",
        "def f():\n    import no_such_module",
        "from . import sibling\nfrom .sibling import x\nfrom ... import y",
    ],
)
def test_an_import_that_is_guarded_or_comes_later_is_no_problem(write, source):
    assert check(write(source)) == []


def test_a_name_that_tf_contrib_never_had_is_a_problem_once(
    write, tmp_path, monkeypatch
):
    (tmp_path / "LICENSE").write_text(wheel.LICENSE)
    monkeypatch.setenv(wheel.FOLDER_VARIABLE, str(tmp_path))
    script = write(
        "import tensorflow as tf\n"
        "tf.contrib.layers.flatten\n"
        "tf.contrib.layers.nosuch\n"
        "tf.contrib.kafka.nosuch\n"
    )
    why = "TensorFlow 1.15.5 has no tf.contrib.{}"
    layers, kafka = "tensorflow.contrib.layers", "tensorflow.contrib.kafka"
    answered = answer(
        of_version_1=[f"{layers}.flatten"],
        lacking=[
            (f"{layers}.nosuch", why.format("layers.nosuch")),
            (f"{kafka}.nosuch", why.format("kafka.nosuch")),
        ],
    )
    assert check(script, answered, ESTIMATOR_RUNTIME_TF1="1") == [
        (
            "note",
            "train.py:2: names of TensorFlow 1 (tf.contrib.layers.flatten), and --tf1 "
            "is on",
        ),
        ("problem", f"train.py:3: {why.format('layers.nosuch')}"),
        (
            "problem",
            "train.py:4: tf.contrib.kafka is gone: use the package tensorflow-io",
        ),
        ("ok", f"tf.contrib is TensorFlow 1.15.5's, in {tmp_path}"),
    ]
