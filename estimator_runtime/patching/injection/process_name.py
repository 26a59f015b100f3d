"""Names this process after its task, such as "worker 1".

All tasks of a job have the same command line, so process lists need the name to
distinguish them. A program that uses `absl.app.run` replaces it by its own name.
"""

import contextlib
from collections.abc import Mapping

from estimator_runtime.config.role import read_task
from estimator_runtime.config.tf_config import parse

# Threads that start later inherit the name.
_PATH = "/proc/self/comm"


def name_after_task(environ: Mapping[str, str]) -> None:
    """Set the name of this process to that of its task.

    The kernel keeps the first 15 bytes. The function does nothing without a cluster or
    a task, and on systems other than Linux. Call `tf_config.check_form` first.
    """
    name = task_name(environ)
    if name is not None:
        # A missing name is not worth an error where /proc cannot be written.
        with contextlib.suppress(OSError), open(_PATH, "w") as file:
            file.write(name)


def task_name(environ: Mapping[str, str]) -> str | None:
    """Return the name of this process's task, such as "worker 1", or None.

    Call `tf_config.check_form` first.
    """
    text = environ.get("TF_CONFIG")
    document = parse(text) if text else {}
    # `check_form` checks the task only if there is a cluster.
    task = read_task(document.get("task", {})) if document.get("cluster") else {}
    if "type" not in task or "index" not in task:
        return None
    return f"{task['type']} {task['index']}"
