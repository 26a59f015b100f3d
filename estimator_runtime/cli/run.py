"""`estimator-runtime run` with a cluster: its options, made into a job that is run."""

import contextlib
import os
import signal
import sys
import time

from estimator_runtime.dashboard import Dashboard
from estimator_runtime.errors import LaunchError, UsageError
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
    from estimator_runtime.launch.console import Console
    from estimator_runtime.launch.stream_writer import write_in_time

    job = job_of(options)
    console = Console()
    backend = get_backend(options.backend, console=console, **_backend_options(options))
    try:
        handle = backend.submit(job)
    except KeyboardInterrupt:  # while it waited for room in a cluster
        write_in_time(
            sys.stderr, "estimator-runtime: stopped by SIGINT before the start\n"
        )
        return 128 + signal.SIGINT
    try:
        with contextlib.ExitStack() as stack:
            begin = _dashboard(options.tensorboard, handle, console, stack)
            try:
                outcome = _wait(handle, begin)
            except KeyboardInterrupt:  # before signals were heeded
                _cancel(handle, signal.SIGINT)
                outcome = _wait(handle, begin)
            begin(is_end=True)
    except LaunchError as error:  # whoever reads the lines may have paused
        write_in_time(sys.stderr, f"estimator-runtime: error: {error}\n")
        return 1
    write_in_time(sys.stderr, f"estimator-runtime: {outcome}\n")
    return outcome.exit_status


def _dashboard(port, handle, console, stack):
    """Give what starts TensorBoard, if it is wanted, once the folder is known."""
    waiting = [] if port is None else [port]

    def begin(is_end=False):
        folder = handle.model_dir()
        if waiting and is_end:
            console.say(
                "TensorBoard was not started: no task has said in time which its model "
                "directory is, as tf.estimator.train_and_evaluate does"
            )
        elif waiting and folder is not None:
            dashboard = Dashboard.started(folder, waiting.pop(), console.say)
            if dashboard is not None:
                stack.callback(dashboard.close)

    return begin


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
        "refill_restarts_secs": getattr(options, "refill_restarts", None),
        "heartbeat_timeout_secs": getattr(options, "heartbeat_timeout", None),
        "evaluation_timeout_secs": getattr(options, "evaluation_timeout", None),
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


def _wait(handle, look):
    """Wait for the end; the first Ctrl-C, SIGTERM or SIGHUP stops the job in order.

    Args:
        handle: The `JobHandle`.
        look: Called now and then meanwhile.
    """
    from estimator_runtime.launch.stop_requests import StopRequests

    requests = StopRequests()

    def stop(number, _frame):
        if requests.take(number, time.monotonic()):
            _cancel(handle, number)

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as it is under nohup
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        while True:
            try:
                return handle.wait(_POLL_SECS)
            except TimeoutError:
                look()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cancel(handle, number):
    from estimator_runtime.launch.stop_requests import exit_status_of

    reason = f"the job was stopped by {signal.Signals(number).name}"
    handle.cancel(exit_status_of(number), reason)
