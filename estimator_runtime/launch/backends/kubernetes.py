"""Renders a job as manifests for Kubernetes.

This is no back end: it applies nothing, so there is no job to wait for.

The manifests have one Job for each task type and a JobSet (jobset.x-k8s.io) around
them. The JobSet also creates the headless service that resolves the names of the pods.
So every address is known before anything runs, and a restarted task keeps its address.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from estimator_runtime.config.role import TaskType
from estimator_runtime.config.tf_config import TFConfig
from estimator_runtime.config.waits import LOCAL_WAITS, PS_GRACE_VARIABLE
from estimator_runtime.errors import ConfigError
from estimator_runtime.launch.job import Job, cluster_of
from estimator_runtime.reporting import ATTEMPT_VARIABLE, JOB_VARIABLE

_PORT = 2222
_CLAIM_PATH = "/checkpoints"
# Seconds after SIGTERM for the last step and its checkpoint. A ps stays that long too,
# as long as a trainer runs.
_GRACE_SECS = 60
# The group of the user in the Dockerfile; a test compares the two.
_GROUP = 1000
# Fields of a pod that are made for the job itself.
_OWN_FIELDS = (
    "containers",
    "volumes",
    "restartPolicy",
    "terminationGracePeriodSeconds",
)
_INDEX = "TASK_INDEX"
# Variables that Kubernetes sets from fields of the pod; a missing field is empty.
_FIELDS = {
    _INDEX: "metadata.annotations['batch.kubernetes.io/job-completion-index']",
    # These labels exist since JobSet 0.9.
    JOB_VARIABLE: "metadata.labels['jobset.sigs.k8s.io/jobset-uid']",
    ATTEMPT_VARIABLE: "metadata.labels['jobset.sigs.k8s.io/restart-attempt']",
}
_NOTE = """\
# `kubectl delete -f` with this file deletes the claim too, and the checkpoints with it.
# To stop the job, and before it is applied again, delete the JobSet only, and wait for
# its pods to save and go:
#   kubectl delete jobset {name} --cascade=foreground
# The claim stays Pending where its storage class cannot give ReadWriteMany.
"""
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?\Z")
# With the suffix "-evaluator-0-0", a host name may have 63 characters.
_MAX_NAME = 40
# Text that YAML 1.1 and 1.2 both read unchanged without quotes, unless it is a word
# such as "yes", which PyYAML quotes. PyYAML alone would leave "1e3" without quotes.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]+\Z")


@dataclasses.dataclass(frozen=True, kw_only=True)
class KubernetesRenderer:
    """Renders a job as a JobSet and a claim for the volume of its checkpoints.

    Attributes:
        image: The container image, with this package and the program.
        name: The name of the JobSet; the names of all other objects begin with it.
        storage: Size of the volume, such as "10Gi"; None for that one.
        storage_class: Storage class of the claim; None for the cluster's default.
        claim: Name of an existing claim to use; None to create one.
        fs_group: The group that may write to the volume and that all pods belong to;
            None for the group of the user in the Dockerfile.
        pod_spec: More fields for the spec of each pod, such as nodeSelector. They
            replace those of the same name.
    """

    image: str
    name: str
    storage: str | None = None
    storage_class: str | None = None
    claim: str | None = None
    fs_group: int | None = None
    pod_spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            ConfigError: If the name is not valid in Kubernetes, or a size or class is
                given for an existing claim.
        """
        if not _NAME.match(self.name) or len(self.name) > _MAX_NAME:
            raise ConfigError(
                f"name is {self.name!r}; give one of at most {_MAX_NAME} small "
                "letters, digits and hyphens, which begins with a letter: --name NAME"
            )
        if self.claim and (self.storage or self.storage_class):
            raise ConfigError(
                f"the claim {self.claim!r} is one that exists; leave out --storage and "
                "--storage-class, or --claim to make one"
            )

    def render(self, job: Job) -> str:
        """Return the manifests of a job as YAML, for `kubectl apply -f`.

        Raises:
            ConfigError: If a task takes a fraction of a GPU.
        """
        for asked in job.resources.values():
            if asked.gpus != int(asked.gpus):
                raise ConfigError(
                    f"a task takes {asked.gpus:g} GPU, and Kubernetes assigns whole "
                    "GPUs only; give a whole number with --gpus-per-worker"
                )
        manifests = [self._network_policy(), self._job_set(job)]
        if self.claim is not None:
            return documents(manifests)
        return _NOTE.format(name=self.name) + documents([self._new_claim(), *manifests])

    @property
    def _claim_name(self) -> str:
        return self.claim or f"{self.name}-checkpoints"

    def _new_claim(self) -> dict[str, Any]:
        named = {"storageClassName": self.storage_class} if self.storage_class else {}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": self._claim_name},
            "spec": {
                **named,
                # Trainers and the evaluator may run on several nodes.
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": self.storage or "10Gi"}},
            },
        }

    def _network_policy(self) -> dict[str, Any]:
        """Return the rule that only the pods of this job connect to each other.

        TensorFlow's servers run code for whoever can reach them.
        """
        pods = {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": self.name}}
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": self.name},
            "spec": {
                "podSelector": pods,
                "policyTypes": ["Ingress"],
                "ingress": [{"from": [{"podSelector": pods}]}],
            },
        }

    def _job_set(self, job: Job) -> dict[str, Any]:
        types = list(dict.fromkeys(task.type for task in job.tasks))
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": self.name},
            "spec": {
                "network": {"enableDNSHostnames": True, "subdomain": self.name},
                # A ps and an evaluator end without a signal, when the training is done.
                "successPolicy": {"operator": "All"},
                # Recreate the Jobs only when all pods are gone: old pods that still
                # save would share their names with new ones.
                "failurePolicy": {
                    "maxRestarts": job.max_restarts,
                    "restartStrategy": "BlockingRecreate",
                },
                "replicatedJobs": [self._replicated_job(job, each) for each in types],
            },
        }

    def _replicated_job(self, job: Job, task_type: str) -> dict[str, Any]:
        count = job.replicas[task_type]
        # Trainers without a ps can only be restarted together, which the JobSet does.
        # Other tasks are restarted alone until their restarts are used up. Then the
        # JobSet restarts all of them.
        is_alone = not job.is_gang or task_type == TaskType.EVALUATOR
        restarts = job.max_restarts * count if is_alone else 0
        return {
            "name": task_type,
            "replicas": 1,
            "template": {
                "spec": {
                    "completionMode": "Indexed",
                    "completions": count,
                    "parallelism": count,
                    # If containers are restarted within their pods, a Job fails at the
                    # restart with this number, not after it.
                    "backoffLimit": restarts + 1 if restarts else 0,
                    # Do not start a pod next to one that is ending and still saves.
                    "podReplacementPolicy": "Failed",
                    "template": {"spec": self._pod(job, task_type, restarts)},
                }
            },
        }

    def _pod(self, job: Job, task_type: str, restarts: int) -> dict[str, Any]:
        claim = self._claim_name
        return {
            "restartPolicy": "OnFailure" if restarts else "Never",
            "terminationGracePeriodSeconds": _GRACE_SECS,
            # Otherwise the task is process 1, which SIGTERM does not end by default. A
            # task without a handler, such as an evaluator, would use up that time.
            "shareProcessNamespace": True,
            "securityContext": {
                "fsGroup": _GROUP if self.fs_group is None else self.fs_group,
                "fsGroupChangePolicy": "OnRootMismatch",
                **self.pod_spec.get("securityContext", {}),
            },
            "containers": [self._container(job, task_type)],
            "volumes": [
                {"name": "checkpoints", "persistentVolumeClaim": {"claimName": claim}}
            ],
            **{k: v for k, v in self.pod_spec.items() if k != "securityContext"},
        }

    def _container(self, job: Job, task_type: str) -> dict[str, Any]:
        asked = job.resources.get(task_type)
        amounts: dict[str, str] = {}
        if asked is not None:
            amounts["cpu"] = f"{asked.cpus:g}"
            if asked.gpus:
                amounts["nvidia.com/gpu"] = f"{asked.gpus:g}"
        grace = {PS_GRACE_VARIABLE: str(_GRACE_SECS - 5)}  # so it ends before SIGKILL
        of_ps = grace if task_type == TaskType.PS else {}
        environ = {**LOCAL_WAITS, **of_ps, **job.env}
        return {
            "name": task_type,
            "image": self.image,
            "command": ["estimator-runtime", "run", *map(_literal, job.command)],
            "env": [
                *({"name": name, "value": _literal(environ[name])} for name in environ),
                *(
                    {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                    for name, path in _FIELDS.items()
                ),
                {"name": "TF_CONFIG", "value": self._tf_config(job, task_type)},
            ],
            "ports": [{"containerPort": _PORT}],
            "resources": {"requests": amounts, "limits": dict(amounts)},
            "volumeMounts": [{"name": "checkpoints", "mountPath": _CLAIM_PATH}],
        }

    def _tf_config(self, job: Job, task_type: str) -> str:
        """Return a TF_CONFIG with a reference that Kubernetes replaces by the index."""
        cluster = cluster_of(
            {
                # The pod with this index, of the only Job of this type.
                task: f"{self.name}-{task.type}-0-{task.index}.{self.name}:{_PORT}"
                for task in job.addressed
            }
        )
        config = TFConfig(cluster=cluster, task_type=task_type, task_index=0)
        content = json.loads(config.to_json())
        content["task"]["index"] = _INDEX
        return json.dumps(content).replace(f'"{_INDEX}"', f"$({_INDEX})")


def read_pod_spec(path: str) -> dict[str, Any]:
    """Return the fields for each pod that a YAML file has.

    Raises:
        ConfigError: If the file cannot be read, is no mapping, or has a field that is
            made for the job itself.
    """
    try:
        with open(path, encoding="utf-8") as file:
            fields = yaml.safe_load(file)
    except (OSError, ValueError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise ConfigError(f"--pod-spec {path!r} cannot be read: {problem}") from error
    if not isinstance(fields, dict):
        raise ConfigError(
            f"--pod-spec {path!r} is no mapping; give fields of a pod's spec, such as "
            "'nodeSelector: {pool: train}'"
        )
    if own := [name for name in _OWN_FIELDS if name in fields]:
        raise ConfigError(
            f"--pod-spec {path!r} has {own[0]}, which is made for the job; leave it out"
        )
    return fields


def _literal(text: str) -> str:
    """Escape a text for Kubernetes, which replaces $(NAME) by a value and $$ by $."""
    return text.replace("$", "$$")


def documents(values: Iterable[dict[str, Any] | list[Any]]) -> str:
    """Return several values as YAML, with `---` between them."""
    # Without a limit of the width, so that no text is broken into several lines.
    return yaml.dump_all(values, Dumper=_Dumper, sort_keys=False, width=float("inf"))


class _Dumper(yaml.SafeDumper):
    """Quotes each text that a reader of YAML could take for a number or a boolean."""

    def ignore_aliases(self, data: object) -> bool:
        """Write a value that occurs twice in full each time."""
        return True

    def represent_text(self, text: str) -> yaml.Node:
        """Represent a text, quoted unless it is surely read as one."""
        style = None if _PLAIN.match(text) else '"'
        return self.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _Dumper.represent_text)
