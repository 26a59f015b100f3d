"""Measures several contenders in one interleaved run, and keeps every figure.

A machine's speed drifts, so contenders are never measured one after the other: each
takes part in every round, the order rotates from round to round, and contenders are
compared within a round. What is reported is the median over the rounds, with the
quartiles that tell how far to trust it.
"""

import dataclasses
import datetime
import gc
import importlib.metadata
import json
import os
import pathlib
import platform
import statistics
import time

SERVER_PID = "BENCHMARK_SERVER_PID"
_PACKAGES = ("tensorflow", "tensorflow-estimator", "tf-keras", "keras", "numpy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stamp:
    """A moment, by two clocks.

    Attributes:
        wall_secs: By the wall clock.
        cpu_secs: CPU time of all threads of this process.
        server_cpu_secs: That of the process whose id is in the variable
            BENCHMARK_SERVER_PID, in hundredths of a second; None without it.
    """

    wall_secs: float
    cpu_secs: float
    server_cpu_secs: float | None = None

    @classmethod
    def now(cls):
        """Return the current time."""
        return cls(
            wall_secs=time.perf_counter(),
            cpu_secs=time.process_time(),
            server_cpu_secs=_cpu_secs_of(os.environ.get(SERVER_PID)),
        )


def _cpu_secs_of(pid):
    if pid is None:
        return None
    # After the name, which is in brackets and may have spaces: utime and stime.
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """What one step cost on the average of a contender's measured steps.

    Attributes:
        wall_us: Microseconds of wall time.
        cpu_us: Microseconds of CPU time, on all threads of the process.
        server_cpu_us: Microseconds of CPU time of a parameter server, or None.
        notes: What the contender had to say, such as why it could not fuse steps.
    """

    wall_us: float
    cpu_us: float
    server_cpu_us: float | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def between(cls, first, last, steps, notes=()):
        """Return the cost of each of `steps` steps between two stamps."""
        server_cpu_us = None
        if first.server_cpu_secs is not None:
            server_cpu_secs = last.server_cpu_secs - first.server_cpu_secs
            server_cpu_us = server_cpu_secs / steps * 1e6
        return cls(
            wall_us=(last.wall_secs - first.wall_secs) / steps * 1e6,
            cpu_us=(last.cpu_secs - first.cpu_secs) / steps * 1e6,
            server_cpu_us=server_cpu_us,
            notes=tuple(notes),
        )


def interleave(contenders, rounds, announce, together=1):
    """Measure every contender once in every round.

    Args:
        contenders: Name to a callable without arguments that gives a `Cost`.
        rounds: How many rounds; 1 or more.
        announce: Called with a line of text before each measurement.
        together: How many neighbours stay neighbours in every round.

    Returns:
        Name to the list of its `Cost`s, one for each round.
    """
    costs = {name: [] for name in contenders}
    for number in range(rounds):
        for name in _order(list(contenders), number, together):
            announce(f"round {number + 1} of {rounds}: {name}")
            # The graphs of the one before are gone before this one starts.
            gc.collect()
            costs[name].append(contenders[name]())
    return costs


def _order(names, number, together):
    groups = [names[i : i + together] for i in range(0, len(names), together)]
    return [
        name for group in _rotated(groups, number) for name in _rotated(group, number)
    ]


def _rotated(sequence, by):
    first = by % len(sequence)
    return sequence[first:] + sequence[:first]


def spread(values):
    """Return the median and the quartiles of `values`, and the values."""
    values = list(values)
    if len(values) == 1:
        q1 = median = q3 = values[0]
    else:
        q1, median, q3 = statistics.quantiles(values, method="inclusive")
    return {"median": median, "q1": q1, "q3": q3, "rounds": values}


def summarize(costs, baseline):
    """Return the figures of each contender, as they are written to the JSON file.

    Args:
        costs: Name to `Cost`s, one for each round.
        baseline: The contender that the others are compared with, round by round.
    """
    reference = [cost.wall_us for cost in costs[baseline]]
    return {
        name: {
            "wall_us_per_step": spread(cost.wall_us for cost in own),
            "cpu_us_per_step": spread(cost.cpu_us for cost in own),
            "steps_per_sec": spread(1e6 / cost.wall_us for cost in own),
            "ratio_to_baseline": spread(
                cost.wall_us / other for cost, other in zip(own, reference, strict=True)
            ),
            "notes": sorted({note for cost in own for note in cost.notes}),
            **_of_server(own),
        }
        for name, own in costs.items()
    }


def _of_server(costs):
    if any(cost.server_cpu_us is None for cost in costs):
        return {}
    return {"server_cpu_us_per_step": spread(cost.server_cpu_us for cost in costs)}


def new_report(benchmark, baseline, quick, **results):
    """Return a report, ready for JSON, whose results are yet to be filled in."""
    return {
        "benchmark": benchmark,
        "baseline": baseline,
        "quick": quick,
        "machine": machine(),
        **results,
    }


def machine():
    """Return where and with what the figures were measured."""
    return {
        "cpu": _cpu_name(),
        "gpus": _gpu_names(),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gb": round(
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1
        ),
        "load_average_at_start": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "estimator_runtime": _runtime_version(),
        "date": datetime.date.today().isoformat(),
    }


def write(report, path):
    """Write a report as JSON; make its folder if need be."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def read(path):
    """Read what `write` wrote."""
    return json.loads(pathlib.Path(path).read_text())


def _cpu_name():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.machine()


def _gpu_names():
    import tensorflow as tf

    details = tf.config.experimental.get_device_details
    gpus = tf.config.list_physical_devices("GPU")
    return [details(gpu).get("device_name", "unknown GPU") for gpu in gpus]


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _runtime_version():
    from estimator_runtime import __version__

    return __version__
