"""`estimator-runtime run` with a cluster: its options, made into a job that is run."""

import os
import signal
import sys

from estimator_runtime.errors import UsageError
from estimator_runtime.role import TaskType

_POLL_SECS = 0.5


def launch(options):
    """Run the program as a cluster, to its end.

    Returns:
        The exit status.

    Raises:
        ConfigError: If the job cannot be started.
    """
    from estimator_runtime.launch import get_backend
    from estimator_runtime.launch.stream_writer import write_in_time

    job = job_of(options)
    backend = get_backend(options.backend, **_backend_options(options))
    try:
        handle = backend.submit(job)
    except KeyboardInterrupt:  # while it waited for room in a cluster
        sys.stderr.write("estimator-runtime: stopped by SIGINT before the start\n")
        return 128 + signal.SIGINT
    outcome = _wait(handle)
    write_in_time(sys.stderr, f"estimator-runtime: {outcome}\n")
    return outcome.exit_status


def _backend_options(options):
    if options.backend == "local":
        return {"warm": not options.cold, "private_network": options.private_network}
    return {
        "address": options.ray_address or "auto",
        "placement": options.placement or "spread",
        "placement_timeout_secs": options.placement_timeout,
        "working_dir": options.working_dir,
    }


def job_of(options):
    """Give the `Job` that the options ask for.

    Raises:
        UsageError: If nobody would train, or the script is not in the folder that is
            copied.
        ConfigError: If a value cannot be used.
    """
    from estimator_runtime.launch import Job, Resources

    replicas = {
        TaskType.CHIEF: 0 if options.no_chief else 1,
        TaskType.WORKER: options.workers or 0,
        TaskType.PS: options.ps or 0,
        TaskType.EVALUATOR: int(options.evaluator),
    }
    if options.no_chief and not options.workers:
        raise UsageError(
            "--no-chief without workers leaves nobody to train; add --workers N, or "
            "leave out --no-chief"
        )
    trainer = Resources(
        cpus=_given(options.cpus_per_worker, 1), gpus=_given(options.gpus_per_worker, 0)
    )
    resources = {
        TaskType.CHIEF: trainer,
        TaskType.WORKER: trainer,
        TaskType.PS: Resources(cpus=_given(options.cpus_per_ps, 1)),
        TaskType.EVALUATOR: Resources(cpus=trainer.cpus),
    }
    program, *arguments = options.program
    working_dir = getattr(options, "working_dir", None)
    if working_dir is not None and not options.is_module:
        program = _in_copy(program, working_dir)
    command = (*(["-m"] if options.is_module else []), "--", program, *arguments)
    given = {
        "max_restarts": options.max_restarts,
        "heartbeat_timeout_secs": getattr(options, "heartbeat_timeout", None),
        "log_dir": getattr(options, "log_dir", None),
    }
    return Job(
        command=command,
        replicas=replicas,
        resources=resources,
        **{name: value for name, value in given.items() if value is not None},
    )


def _given(value, default):
    return default if value is None else value


def _in_copy(script, folder):
    """Give the path of a script in a copy of the folder."""
    path = os.path.relpath(os.path.realpath(script), os.path.realpath(folder))
    if path.startswith(os.pardir + os.sep):
        raise UsageError(
            f"script {script!r} is not in --working-dir {folder!r}, which is copied to "
            "the nodes; name a folder that has it"
        )
    return path


def _wait(handle):
    """Wait for the end; the first Ctrl-C or SIGTERM stops the job in order."""

    def stop(number, _frame):
        name = signal.Signals(number).name
        handle.cancel(128 + number, f"the job was stopped by {name}")

    before = {
        number: signal.signal(number, stop)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        while True:
            try:
                return handle.wait(_POLL_SECS)
            except TimeoutError:
                continue
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
