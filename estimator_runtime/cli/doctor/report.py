"""The whole examination: what is looked at, in which order, and the exit status."""

import json
import os
import pathlib

from estimator_runtime import script, training_flags
from estimator_runtime.compat import versions
from estimator_runtime.doctor import (
    changed,
    devices,
    folder,
    packages,
    probe,
    program,
    task,
)
from estimator_runtime.doctor.finding import (
    NOTE,
    OK,
    PROBLEM,
    Finding,
    as_json,
    as_text,
)
from estimator_runtime.errors import ConfigError, EstimatorRuntimeError

_SHOWN = 5
# What models are made of; the rest, such as keras.utils, does no harm.
_MODELS_OF_KERAS = (
    *("keras.Input", "keras.Model", "keras.Sequential", "keras.Variable"),
    *("keras.applications", "keras.layers", "keras.metrics", "keras.models"),
    "keras.optimizers",
)


def add_options(parser):
    """Add the options of `doctor`."""
    parser.add_argument(
        "--model-dir",
        metavar="FOLDER",
        help="model directory to look at (default: the model_dir of TF_CONFIG)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object instead of a table"
    )
    parser.add_argument(
        "script", metavar="SCRIPT", nargs="?", help="a script to read, but not to run"
    )


def describe(options, environ=os.environ):
    """Say what was found.

    Args:
        options: As parsed.
        environ: The environment.

    Returns:
        (text, exit status: 1 if there is a problem, else 0).

    Raises:
        UsageError: If there is no such script.
    """
    if options.script is not None:
        script.check_script(options.script)
    found = list(_examine(options, environ))
    text = json.dumps(as_json(found), indent=2) if options.json else as_text(found)
    return text, int(any(each.state == PROBLEM for each in found))


def _examine(options, environ):
    installed = packages.examine()
    yield installed
    uses, unparsable = _read(options.script)
    answer = None
    if installed.state == PROBLEM:
        text = "TensorFlow was not asked: mend the packages first"
        yield Finding(about="devices", state=NOTE, text=text)
    else:
        try:
            first_path = os.path.dirname(os.path.realpath(options.script or ""))
            answer = probe.ask(
                uses.names if uses else (), first_path if options.script else None
            )
            yield devices.examine(answer, environ)
        except EstimatorRuntimeError as error:
            yield Finding(about="TensorFlow", state=PROBLEM, text=str(error))
    try:
        training_flags.check(environ)
    except ConfigError as error:
        yield Finding(about="settings", state=PROBLEM, text=str(error))
    config, said = task.read(environ)
    yield said
    if config is not None and config.cluster:
        yield from task.examine_ports(config)
    yield from folder.examine(options.model_dir, config)
    yield packages.examine_ray()
    yield packages.examine_activation(environ)
    if unparsable:
        yield unparsable
    elif uses:
        yield from _examine_script(options.script, uses, answer)


def _read(path):
    """Give (what a script uses, None), or (None, a finding that says why not)."""
    if path is None:
        return None, None
    try:
        loader, file, _ = script.load_script(path)
    except EstimatorRuntimeError as error:
        return None, Finding(
            about="script", state=PROBLEM, text=f"{error}; mend that line first"
        )
    if file.endswith(".pyc"):
        text = f"{path} is compiled: give its source"
        return None, Finding(about="script", state=NOTE, text=text)
    return program.read(loader.get_data(file)), None


def _examine_script(path, uses, answer):
    name = pathlib.Path(path).name
    shown = [_shown(each) for each in uses.estimator_names]
    facts = {"names": dict(uses.names)}
    if not shown:
        text = (
            f"{name} can be parsed, and names no Estimator itself; modules that it "
            "imports may"
        )
        yield Finding(about="script", state=NOTE, text=text, facts=facts)
    else:
        more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
        text = f"{name} can be parsed, and uses {', '.join(shown[:_SHOWN])}{more}"
        yield Finding(about="script", state=OK, text=text, facts=facts)
    if answer is not None:
        yield from _missing(name, uses, answer)
    for line, used, difference, remedy in changed.find(uses):
        text = f"{name}:{line}: {_shown(used)} {difference}; write {_shown(remedy)}"
        yield Finding(about="script", state=NOTE, text=text)
    if answer is None or versions.parse(versions.tensorflow_version()) < (2, 16):
        return
    for line in uses.tpu_lines:
        text = (
            f"{name}:{line}: use_tpu=True: training on TPUs needs TensorFlow 2.15; "
            "with use_tpu=False it trains here"
        )
        yield Finding(about="script", state=PROBLEM, text=text)
    if uses.keras_names and shown:
        yield _keras_3(name, uses.keras_names)


def _keras_3(name, used):
    """Say what `import keras` means to a script that uses Estimators."""
    for dotted, line in used.items():
        if dotted.startswith(_MODELS_OF_KERAS):
            # For the Estimators, most likely: beside TensorFlow 2.15 it could be.
            text = (
                f"{name}:{line}: {dotted} is of Keras 3 here, which Estimators "
                "cannot use; write `from tensorflow import keras`, and `from "
                "tensorflow.keras...` for `from keras...`"
            )
            return Finding(about="script", state=PROBLEM, text=text)
    text = (
        f"{name}:{min(used.values())}: keras is Keras 3 here; models for an Estimator "
        "have to be of tf.keras"
    )
    return Finding(about="script", state=NOTE, text=text)


def _missing(name, uses, answer):
    told = set()
    for dotted, part in answer["missing"].items():
        if part in told:
            continue
        told.add(part)
        if answer["v1"].get(dotted):
            remedy = (
                f"write {_shown(_in_v1(dotted))}, or import tensorflow.compat.v1 as tf"
            )
        elif part == "tensorflow.contrib":
            remedy = (
                "it went with TensorFlow 1; estimator_runtime.contrib.learn has the "
                "RunConfig of tf.contrib.learn"
            )
        else:
            remedy = "look for its new name, or take it out"
        text = (
            f"{name}:{uses.names[dotted]}: there is no {_shown(part)} in this "
            f"TensorFlow; {remedy}"
        )
        yield Finding(about="script", state=PROBLEM, text=text, facts={"name": dotted})


def _in_v1(dotted):
    return "tensorflow.compat.v1." + dotted.removeprefix("tensorflow.")


def _shown(dotted):
    """Write a name as scripts do."""
    first, dot, rest = dotted.partition(".")
    is_public = first == "tensorflow" and not f"{rest}.".startswith("python.")
    return f"tf{dot}{rest}" if is_public else dotted
