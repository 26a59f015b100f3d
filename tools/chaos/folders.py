"""Train a few steps in each damaged model directory, and judge what came of it."""

import argparse
import collections
import json
import multiprocessing
import os
import shutil
import threading
import traceback
from pathlib import Path
from typing import Any

from tools.chaos.damage import make_item
from tools.chaos.pristine import SHAPES, Model, build, step_of_values
from tools.chaos.verdict import TRAINED, allowed_starts, good_checkpoints, judge

ITEM_SECS = 120.0


def train_on(folder: Path, shards: int) -> dict[str, Any]:
    """Train a few steps in a folder; return what was seen."""
    import tensorflow as tf

    from estimator_runtime import EstimatorRuntimeError

    starts: list[Any] = []

    class Seen(tf.compat.v1.train.SessionRunHook):
        def after_create_session(self, session: Any, coord: Any) -> None:
            starts.append(step_of_values(session.run(model.fetches)))

    outcome: dict[str, Any] = {
        "error": None,
        "is_ours": True,
        "start": None,
        "saved": None,
    }
    try:
        with tf.Graph().as_default():
            model = Model(shards, keep=100)
            with model.session(folder, 1000, [Seen()]) as session:
                for _ in range(TRAINED):
                    session.run(model.train)
        path = tf.train.latest_checkpoint(str(folder))
        reader = tf.train.load_checkpoint(path)
        names = ["global_step", *(f"v{i}" for i in range(len(SHAPES)))]
        outcome["saved"] = step_of_values([reader.get_tensor(n) for n in names])
    except Exception as error:  # noqa: BLE001 - which kind it is, is judged
        first_line = str(error).partition("\n")[0]
        outcome["error"] = f"{type(error).__name__}: {first_line}"
        outcome["is_ours"] = isinstance(error, EstimatorRuntimeError)
        outcome["traceback"] = traceback.format_exc()
    if starts:
        outcome["start"] = "mixed" if starts[0] is None else starts[0]
    return outcome


def serve(connection: Any, work: Path, seed: str, log: Path) -> None:
    """Do items in a process of their own: a crash costs one item.

    A number is an item; "build" makes the pristine folders.
    """
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    import estimator_runtime as er

    er.install()
    while (request := connection.recv()) is not None:
        if request == "build":
            build(work)
            connection.send(None)
        else:
            connection.send(run_item(request, seed, work))


def run_item(number: int, seed: str, work: Path) -> dict[str, Any]:
    """Damage a folder, train in it, and judge; keep the folder of a violation."""
    item = make_item(number, seed, work)
    before = item.folder.with_name("before")
    shutil.copytree(item.folder, before, symlinks=True)
    good = good_checkpoints(item.folder, item.base)
    starts = allowed_starts(item, good)
    shards = int(item.base.parent.name.rpartition("-")[2])
    outcome = train_on(item.folder, shards)
    what, problem = judge(item, good, starts, outcome)
    result = {"number": number, "kinds": item.kinds, "what": what, "problem": problem}
    result |= {"story": item.story, "outcome": outcome, "good": sorted(good)}
    if problem is None:
        shutil.rmtree(item.folder.parent)
    else:
        report = item.folder.with_name("report.json")
        report.write_text(json.dumps(result, indent=1))
    return result


class Worker:
    """A process that does items; replaced when it dies or hangs."""

    def __init__(self, work: Path, seed: str, index: int):
        self._arguments = (work, seed, work / f"worker-{index}.log")
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, *self._arguments))
        self._process.start()
        theirs.close()

    def do(self, request: Any) -> Any:
        """Return the result of a request, or a violation if the process failed."""
        self._connection.send(request)
        problem = f"no end within {ITEM_SECS:g} s"
        try:
            if self._connection.poll(ITEM_SECS):
                return self._connection.recv()
        except EOFError:
            self._process.join()
            problem = f"the process died with {self._process.exitcode}"
        self._process.kill()
        self._process.join()
        self._start()
        return {"number": request, "kinds": ["?"], "what": "died", "problem": problem}

    def end(self) -> None:
        """End the process."""
        self._connection.send(None)
        self._process.join()


def run(options: argparse.Namespace, work: Path) -> int:
    """Damage folders, print each violation and a table; return their number."""
    # A process of its own: what it left half done has to be a dead one's.
    builder = Worker(work, options.seed, 0)
    failed = builder.do("build")
    builder.end()
    if failed is not None:
        print(f"the pristine folders were not made ({failed['problem']}): see {work}")
        return 1
    only = options.only
    numbers = iter(range(options.count) if only is None else [only])
    lock, results = threading.Lock(), []

    def consume(worker: Worker) -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return worker.end()
            result = worker.do(number)
            with lock:
                results.append(result)
                if result["problem"] or only is not None:
                    show(result, work)

    count = 1 if only is not None else options.processes
    workers = [Worker(work, options.seed, i) for i in range(count)]
    threads = [threading.Thread(target=consume, args=(each,)) for each in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print_table(results)
    return sum(result["problem"] is not None for result in results)


def show(result: dict[str, Any], work: Path) -> None:
    """Print one result with all that led to it."""
    number = result["number"]
    print(f"{number}: {result['problem'] or 'right: ' + result['what']}")
    for line in result.get("story", []):
        print(f"    {line}")
    print(f"    again: --only {number}; {work / 'items' / str(number)}", flush=True)


def print_table(results: list[dict[str, Any]]) -> None:
    """Print how many came to what, by kind of damage; two kinds count twice."""
    columns = sorted({result["what"] for result in results})
    rows: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter
    )
    for result in results:
        for kind in {*result["kinds"], "all"}:
            rows[kind][result["what"]] += 1
            rows[kind]["violations"] += result["problem"] is not None
    columns.append("violations")
    widths = [max(6, len(column)) for column in columns]
    print(" " * 32, *(c.rjust(w) for c, w in zip(columns, widths, strict=True)))
    for kind in sorted(rows, key=lambda kind: (kind == "all", kind)):
        counts = (str(rows[kind][column] or "-") for column in columns)
        cells = (c.rjust(w) for c, w in zip(counts, widths, strict=True))
        print(kind[:32].ljust(32), *cells)
