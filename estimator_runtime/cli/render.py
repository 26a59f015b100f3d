"""`estimator-runtime render`: a job as manifests for Kubernetes, without Ray."""

from __future__ import annotations

import argparse
import os
import re

from estimator_runtime.cli import run_flags
from estimator_runtime.cli.parser import NAME, Parser, add_program
from estimator_runtime.cli.run import job_of


def add_to(commands: argparse._SubParsersAction[Parser]) -> None:
    """Add the parser of `render`."""
    parser = commands.add_parser(
        "render",
        help="print Kubernetes manifests of a job",
        usage=f"{NAME} render --backend kubernetes --image IMAGE [options] SCRIPT "
        "[ARGS...]",
        description="Print a job as manifests for `kubectl apply -f`. Nothing is "
        "started, and neither the\nscript nor the image is looked at. What follows "
        "SCRIPT is the script's.",
    )
    parser.set_defaults(describe=render, takes_program=True)
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
    parser.add_argument(
        "--pod-spec",
        metavar="FILE",
        help="YAML file with more fields of each pod, such as nodeSelector",
    )
    run_flags.add(parser.add_argument_group("the tasks"), run_flags.TASKS)
    run_flags.add(parser.add_argument_group("what each takes"), run_flags.RESOURCES)
    add_program(parser)


def render(options: argparse.Namespace) -> tuple[str, int]:
    """Return the manifests of the job that the options define, and the exit status.

    Raises:
        ConfigError: If a value is invalid.
        UsageError: If no task would train.
    """
    from estimator_runtime.launch.backends import kubernetes

    job = job_of(options)
    renderer = kubernetes.KubernetesRenderer(
        image=options.image,
        name=options.name or _name_of(options.program[0]),
        storage=options.storage,
        storage_class=options.storage_class,
        claim=options.claim,
        fs_group=options.fs_group,
        pod_spec=kubernetes.read_pod_spec(options.pod_spec) if options.pod_spec else {},
    )
    return renderer.render(job).rstrip(), 0


def _name_of(program: str) -> str:
    """Return a name for Kubernetes, made of the file name of the program."""
    stem = os.path.splitext(os.path.basename(program))[0]
    return re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-") or "job"
