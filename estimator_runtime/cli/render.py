"""`estimator-runtime render`: a job as manifests for Kubernetes, without Ray."""

import argparse
import os
import re

from estimator_runtime.cli import run, run_flags

_NO_NAME = "job"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `render` to its parser."""
    parser.add_argument(
        "--backend",
        choices=("kubernetes",),
        required=True,
        help="the kind of manifests",
    )
    parser.add_argument(
        "--image",
        required=True,
        help="the container image, which has estimator-runtime and the program",
    )
    parser.add_argument("--name", help="name of the job (default: that of the program)")
    parser.add_argument(
        "--storage",
        metavar="SIZE",
        help="size of the volume at /checkpoints (default: 10Gi)",
    )
    parser.add_argument(
        "--storage-class",
        metavar="CLASS",
        help="its storage class, with ReadWriteMany (default: the cluster's)",
    )
    parser.add_argument(
        "--claim",
        metavar="NAME",
        help="existing claim for the volume at /checkpoints (default: make one)",
    )
    parser.add_argument(
        "--fs-group",
        metavar="GID",
        type=int,
        help="group that may write to the volume (default: 1000, as in our image)",
    )
    run_flags.add_task_options(parser.add_argument_group("the tasks"))
    run_flags.add_resource_options(parser.add_argument_group("what each takes"))


def render(options: argparse.Namespace) -> str:
    """Return the manifests of the job that the options define.

    Raises:
        ConfigError: If a value is invalid.
        UsageError: If no task would train.
    """
    from estimator_runtime.launch.backends.kubernetes import KubernetesRenderer

    job = run.job_of(options)
    name = options.name or _name_of(options.program[0])
    renderer = KubernetesRenderer(
        image=options.image,
        name=name,
        storage=options.storage,
        storage_class=options.storage_class,
        claim=options.claim,
        fs_group=options.fs_group,
    )
    return renderer.render(job)


def _name_of(program: str) -> str:
    """Return a name for Kubernetes, made of the file name of the program."""
    stem = os.path.splitext(os.path.basename(program))[0]
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or _NO_NAME
