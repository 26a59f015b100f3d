"""Checks whether the tasks of a job with parameter servers train on equal batches.

ParameterServer training does not give each task different input. With a seed, tasks
draw the same batches even if they shuffle. The text of a script shows the seed and the
shuffle, and usually also any code that makes the input differ by task.
"""

import ast
import dataclasses
from collections.abc import Iterator, Sequence

from estimator_runtime.cli.doctor.finding import NOTE, Finding
from estimator_runtime.config.tf_config import TFConfig

# Parts of names that a program uses to give each task different input, or to choose a
# strategy that does.
_BY_TASK = (
    *("shard", "num_input_pipelines", "input_pipeline_id", "input_context"),
    *("task_index", "task_id", "worker_index", "worker_id", "global_id_in_cluster"),
    *("train_distribute", "from_generator", "service.distribute"),
)
# Parts of names and strings in programs written for parameter servers.
_OF_PS = ("TF_CONFIG", "parameter_server", "ParameterServer", "num_ps_replicas")
_TRAINERS = ("chief", "master", "worker")


@dataclasses.dataclass(frozen=True, kw_only=True)
class InputUse:
    """What the text of a file shows about its input.

    Attributes:
        seeds: Whether it sets `tf_random_seed`.
        shuffle_line: The first line that calls a `shuffle` method, or None.
        differs_by_task: Whether it uses a name that suggests different input for each
            task.
        is_for_ps: Whether it mentions TF_CONFIG or parameter servers.
    """

    seeds: bool
    shuffle_line: int | None
    differs_by_task: bool
    is_for_ps: bool


def read(tree: ast.AST) -> InputUse:
    """Return what a file shows about its input."""
    seeds, shuffle_lines, words = False, [], set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.alias):
            words.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.add(node.value)
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.keyword):
            words.add(node.arg or "")
            is_none = isinstance(node.value, ast.Constant) and node.value.value is None
            seeds = seeds or (node.arg == "tf_random_seed" and not is_none)
        elif isinstance(node, ast.arg):
            words.add(node.arg)
        elif isinstance(node, ast.Call) and _shuffles_dataset(node.func):
            shuffle_lines.append(node.func.end_lineno or node.lineno)
    return InputUse(
        seeds=seeds,
        shuffle_line=min(shuffle_lines, default=None),
        differs_by_task=any(part in word for word in words for part in _BY_TASK),
        is_for_ps=any(part in word for word in words for part in _OF_PS),
    )


def _shuffles_dataset(function: ast.expr) -> bool:
    """Return whether a function that is called may be a dataset's method `shuffle`.

    `random`, `np.random` and `tf.random` have functions of this name.
    """
    if not isinstance(function, ast.Attribute) or function.attr != "shuffle":
        return False
    owner = function.value
    name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", None)
    return name != "random"


def examine(
    files: Sequence[tuple[str, InputUse]], config: TFConfig | None
) -> Iterator[Finding]:
    """Check whether a program gives the tasks of its cluster equal batches.

    Args:
        files: The name of each file of the program, and how it uses input.
        config: TF_CONFIG; None if it cannot be read.
    """
    if config is not None and config.cluster:
        trainers = sum(len(config.cluster.get(each, ())) for each in _TRAINERS)
        is_for_ps = "ps" in config.cluster and trainers > 1
    else:
        is_for_ps = any(its.is_for_ps for _, its in files)
    if (
        not is_for_ps
        or not any(its.seeds for _, its in files)
        or any(its.differs_by_task for _, its in files)
    ):
        return
    for name, its in files:
        if its.shuffle_line is not None:
            text = (
                f"{name}:{its.shuffle_line}: with tf_random_seed, shuffle() gives the "
                "chief and the workers of a job with parameter servers the same "
                "batches; before it, write dataset = estimator_runtime.shard(dataset, "
                "config), where config is the RunConfig"
            )
            yield Finding(NOTE, "script", text)
            return
