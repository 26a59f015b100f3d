"""How long whole programs take, as a user runs them: from the command to the exit."""

import compileall
import dataclasses
import functools
import pathlib
import re
import sys
import tempfile

from benchmarks.harness import measurement, processes

_ROUNDS = 3
_TIMEOUT_SECS = 900
PROGRAM = str(pathlib.Path(__file__).with_name("program.py"))
_EXAMPLES = processes.ROOT / "examples"
_IMPORT = (PROGRAM, "import")
_MODEL_DIR = "MODEL_DIR"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """A program to run.

    Attributes:
        title: What it does, for people.
        command: The script and its arguments; MODEL_DIR among them is replaced.
        quick_arguments: Further arguments for a quick run.
        full_arguments: Further arguments for a measured run.
        is_trained: Whether its model directory has a trained model, which it does not
            change. Else it is empty, and a new one for each run.
        through: The arguments of each further way to do the same, with this runtime.
    """

    title: str
    command: tuple[str, ...]
    quick_arguments: tuple[str, ...]
    full_arguments: tuple[str, ...] = ()
    is_trained: bool = False
    through: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


PROGRAMS = {
    "digits": Program(
        title="examples/digits.py: 2,000 steps, 4 checkpoints, evaluations, an export",
        command=(str(_EXAMPLES / "digits.py"), "--model_dir", _MODEL_DIR),
        quick_arguments=("--max_steps", "20"),
    ),
    "wide_and_deep": Program(
        title="examples/wide_and_deep.py: 1,000 steps, 5 evaluations, 4 exports",
        command=(str(_EXAMPLES / "wide_and_deep.py"), "--model_dir", _MODEL_DIR),
        quick_arguments=("--max_steps", "20"),
    ),
    "train": Program(
        title="one train() for 3,000 steps",
        command=(PROGRAM, "train", _MODEL_DIR),
        quick_arguments=("--steps", "3"),
        full_arguments=("--steps", "3000"),
    ),
    "loop": Program(
        title="10 times train() for 100 steps and evaluate() on 1,000 rows",
        command=(PROGRAM, "loop", _MODEL_DIR),
        quick_arguments=("--epochs", "2", "--steps", "3"),
        full_arguments=("--epochs", "10", "--steps", "100"),
    ),
    "predict": Program(
        title="100 calls of predict(), of 32 rows each",
        command=(PROGRAM, "predict", _MODEL_DIR),
        quick_arguments=("--calls", "2"),
        full_arguments=("--calls", "100"),
        is_trained=True,
    ),
    "rows": Program(
        title="100 rows, one at a time",
        command=(PROGRAM, "row", _MODEL_DIR),
        quick_arguments=("--calls", "2"),
        full_arguments=("--calls", "100"),
        is_trained=True,
        through={
            "predict": ("--through", "predict"),
            "predictor": ("--through", "predictor"),
            "raw session": ("--through", "session"),
        },
    ),
}
_QUICK_PROGRAMS = ("wide_and_deep", "rows")


def measure(quick, announce):
    """Run each program in every way, in turn.

    Stock is plain python with TensorFlow's own Estimator, which TensorFlow 2.16 and
    newer does not have. There it is left out.

    Args:
        quick: As in `steps.measure`.
        announce: Called with a line of text on what is going on.

    Returns:
        The report, ready for JSON; its shape is in README.md.
    """
    # As pip leaves TensorFlow; else the first run of a checkout would compile it.
    compileall.compile_dir(processes.ROOT / "estimator_runtime", quiet=1)
    baseline = "stock" if processes.has_estimator() else "ours"
    report = measurement.new_report("job", baseline, quick, programs={})
    rounds = 1 if quick else _ROUNDS
    with tempfile.TemporaryDirectory() as trained:
        train(trained, announce)
        for name in _QUICK_PROGRAMS if quick else PROGRAMS:
            program = PROGRAMS[name]
            announce(program.title)
            found = measurement.interleave(
                {
                    contender: functools.partial(
                        _measure, program, way, arguments, trained, quick
                    )
                    for contender, way, arguments in contenders(program, baseline)
                },
                rounds,
                announce,
            )
            report["programs"][name] = {
                "title": program.title,
                "contenders": summarize(found, baseline),
            }
    return report


def train(folder, announce):
    """Train the model that some programs predict with, in an empty folder."""
    announce("training the model to predict with")
    run("ours", (PROGRAM, "train", folder))


def contenders(program, baseline):
    """Return the ways to run a program, as (name, way, further arguments).

    Args:
        program: The `Program`.
        baseline: "stock", or "ours" where there is no stock Estimator.
    """
    ways = dict.fromkeys((baseline, "ours"))
    usual = program.through.get("predict", ())
    further = {name: own for name, own in program.through.items() if name != "predict"}
    return [
        *((way, way, usual) for way in ways),
        *((name, "ours", own) for name, own in further.items()),
    ]


def command(way, words):
    """Return the command that runs a program in one of the ways, and its variables."""
    if way == "stock":
        # Also where the runtime is enabled for every python.
        return [sys.executable, *words], {"ESTIMATOR_RUNTIME_AUTO": "0"}
    return [sys.executable, "-m", "estimator_runtime", "run", *words], {}


def summarize(found, baseline):
    """Return the figures of each contender, as they are written to the JSON file.

    Args:
        found: Contender to the figures of each of its runs.
        baseline: The contender that the others are compared with, round by round.
    """
    return {
        name: {
            **{key: measurement.spread(run[key] for run in runs) for key in runs[0]},
            **{
                ratio: measurement.spread(
                    run[key] / other[key]
                    for run, other in zip(runs, found[baseline], strict=True)
                )
                for ratio, key in (
                    ("ratio_to_baseline", "wall_secs"),
                    ("after_import_ratio_to_baseline", "after_import_secs"),
                )
            },
        }
        for name, runs in found.items()
    }


def _measure(program, way, arguments, trained, quick):
    """Run a program, and right before it one that only imports TensorFlow."""
    imported = run(way, _IMPORT)
    with tempfile.TemporaryDirectory() as empty:
        folder = trained if program.is_trained else str(pathlib.Path(empty, "model"))
        own = program.quick_arguments if quick else program.full_arguments
        words = [folder if word == _MODEL_DIR else word for word in program.command]
        done = run(way, (*words, *arguments, *own))
        figures = {
            "wall_secs": done.wall_secs,
            "import_secs": imported.wall_secs,
            "after_import_secs": done.wall_secs - imported.wall_secs,
            "cpu_secs": done.cpu_secs,
            "peak_mb": done.peak_mb,
        }
        if not program.is_trained:
            figures |= _work(pathlib.Path(folder))
    if call := re.search(r"^call_ms (\S+)$", done.output, re.MULTILINE):
        figures["call_ms"] = float(call[1])
    return figures


def run(way, words):
    """Run a program in one of the ways of `command`; return its `processes.Run`."""
    line, variables = command(way, words)
    # What is set for this process says nothing of the ways.
    inherited = processes.environ()
    for option in [name for name in inherited if name.startswith("ESTIMATOR_RUNTIME_")]:
        inherited.pop(option)
    inherited.pop("TF_CONFIG", None)
    return processes.run(line, {**inherited, **variables}, _TIMEOUT_SECS)


def _work(folder):
    """Return how often a program has evaluated and exported.

    `train_and_evaluate` skips what comes too soon after the last, so a faster program
    may do more of it or less.
    """
    events = [path.read_bytes() for path in folder.glob("eval*/events.*")]
    return {
        # An evaluation writes one event of this tag.
        "evaluations": sum(each.count(b"checkpoint_path") for each in events),
        "exports": len(list(folder.glob("export/*/*/saved_model.pb"))),
    }
