"""Names a process after its task, for `ps -o pid,comm`, `top` and `pgrep`.

Standard library only: it runs before TensorFlow is imported.
"""

import contextlib

from estimator_runtime.role import read_task
from estimator_runtime.tf_config import parse

# The kernel's: with it, threads that start later have the name as well.
_PATH = "/proc/self/comm"


def name_after_task(environ):
    """Name this process, as in "worker 1": all tasks of a job have one command line.

    Does nothing where there is no cluster, no task, or no Linux. The kernel keeps 15
    bytes of it.

    Args:
        environ: The variables, with a TF_CONFIG that `tf_config.check_form` has passed.
    """
    text = environ.get("TF_CONFIG")
    document = parse(text) if text else {}
    # Only the task of a cluster was checked.
    task = read_task(document.get("task", {})) if document.get("cluster") else {}
    if "type" in task and "index" in task:
        # Where /proc is missing, or not ours to write, a name is not worth an error.
        with contextlib.suppress(OSError), open(_PATH, "w") as name:
            name.write(f"{task['type']} {task['index']}")
