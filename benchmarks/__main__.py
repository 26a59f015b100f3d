"""python -m benchmarks NAME, or table: see README.md."""

import argparse
import importlib
import importlib.util
import os
import pathlib
import sys
import warnings

from benchmarks.harness import measurement
from benchmarks.harness.report import render

_BENCHMARKS = {
    "steps": ("benchmarks.steps.benchmark", "what a training step costs, in ten ways"),
    "logging": ("benchmarks.steps.logging", "what logging every 100 steps costs"),
    "cluster": (
        "benchmarks.steps.ps_cluster",
        "a step with its variables on another task",
    ),
    "checkpoints": (
        "benchmarks.checkpoints.benchmark",
        "what saving costs, by size and cadence",
    ),
    "restart": (
        "benchmarks.restart.benchmark",
        "what restoring costs, and the memory of saves",
    ),
    "launch": (
        "benchmarks.launch.benchmark",
        "how long a job takes until all of it trains",
    ),
    "job": (
        "benchmarks.job.benchmark",
        "how long whole programs take, from command to exit",
    ),
    "memory": (
        "benchmarks.job.memory",
        "the memory after many evaluations and predictions",
    ),
}
# Where the render of a benchmark of something else than steps is.
_OWN_TABLES = {
    "checkpoints": "benchmarks.checkpoints.report",
    "restart": "benchmarks.restart.report",
    "launch": "benchmarks.launch.benchmark",
    "job": "benchmarks.job.report",
    "memory": "benchmarks.job.memory",
}
_WITHOUT_PLOT = ("launch", "memory", "restart")


def main(arguments=None):
    """Measure and write the figures, or print those that are written."""
    args = _parser().parse_args(arguments)
    if args.command == "table":
        return _print_table(args.file, args.against)
    chosen = vars(args)
    names = ("models", "trainers", "rounds", "steps", "delay_ms")
    options = {name: chosen[name] for name in names if name in chosen}
    _measure(args.command, args.quick, pathlib.Path(args.output), **options)
    return 0


def _parser():
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, purpose) in _BENCHMARKS.items():
        command = commands.add_parser(name, help=purpose, description=purpose)
        command.add_argument(
            "--quick", action="store_true", help="see that it works; no real figures"
        )
        if name in ("steps", "cluster"):
            _add_models(command)
        if name == "cluster":
            _add_cluster_options(command)
        _add_output(command)
    table = commands.add_parser("table", help="print figures as Markdown")
    table.add_argument("file", help="JSON file of a benchmark")
    table.add_argument(
        "--against", metavar="NAME", help="contender to compare with (default: stock)"
    )
    return parser


def _count(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def _add_models(command):
    command.add_argument(
        "--models", nargs="+", metavar="MODEL", help="which to train (default: all)"
    )
    command.add_argument(
        "--rounds", type=_count, default=5, help="of each (default: %(default)s)"
    )


def _add_cluster_options(command):
    command.add_argument(
        "--trainers",
        type=int,
        choices=(1, 2, 4),
        default=1,
        help="the chief and the workers, together (default: %(default)s)",
    )
    command.add_argument(
        "--steps",
        type=_count,
        default=1000,
        help="in each round (default: %(default)s)",
    )
    command.add_argument(
        "--delay-ms",
        type=float,
        default=0.0,
        metavar="MS",
        help="what one task sends to another arrives so much later (default: 0)",
    )


def _print_table(path, against):
    try:
        print(_table(path, against), end="")
    except (OSError, ValueError, KeyError) as error:
        reason = getattr(error, "strerror", None) or (error.args or [error])[0]
        _announce(f"benchmarks table: error: {path}: {reason}")
        return 2
    return 0


def _table(path, against):
    report = measurement.read(path)
    name = report.get("benchmark") if isinstance(report, dict) else None
    if name in _OWN_TABLES:
        if against is not None:
            raise ValueError(f"--against is {against!r}, but {name} has its own table")
        return _own_table(name)(report)
    if name not in _BENCHMARKS:
        raise ValueError("no benchmark has written this; give its NAME.json")
    known = next(iter(report["models"].values()))["contenders"]
    if against is not None and against not in known:
        raise ValueError(f"has no contender {against!r}; give {', '.join(known)}")
    return render(report, against)


def _own_table(name):
    return importlib.import_module(_OWN_TABLES[name]).render


def _add_output(command):
    command.add_argument(
        "--output",
        default="build/benchmarks",
        metavar="FOLDER",
        help="for NAME.json, NAME.md and NAME.png (default: %(default)s)",
    )


def _measure(name, quick, folder, **options):
    _silence()
    benchmark = importlib.import_module(_BENCHMARKS[name][0])
    report = benchmark.measure(quick, announce=_announce, **options)
    own = _own_table(name) if name in _OWN_TABLES else render
    _publish(report, own(report), folder, name)


def _publish(report, table, folder, name):
    measurement.write(report, folder / f"{name}.json")
    (folder / f"{name}.md").write_text(table)
    if name not in _WITHOUT_PLOT:
        _draw(report, folder / f"{name}.png")
    print(table, end="")


def _draw(report, path):
    if importlib.util.find_spec("matplotlib"):
        from benchmarks.harness import plot

        plot.draw(report, path)
    else:
        _announce("no plot: matplotlib is missing; pip install '.[benchmarks]'")


def _silence():
    """Keep advice on old interfaces, which are the point here, off the screen."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    warnings.simplefilter("ignore")
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")


def _announce(line):
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
