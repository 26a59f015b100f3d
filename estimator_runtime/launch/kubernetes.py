"""The Kubernetes back end: writes a job as manifests, and applies nothing.

One Job for each task type, held together by a JobSet (jobset.x-k8s.io), which also
makes the headless service through which the pods know each other by name. So every
address is known before anything runs, and a task that comes back has the same one.
"""

import json
import re

from estimator_runtime.cluster import Cluster
from estimator_runtime.errors import ConfigError
from estimator_runtime.launch import yaml_text
from estimator_runtime.reporting import ATTEMPT_VARIABLE, JOB_VARIABLE
from estimator_runtime.role import TaskType
from estimator_runtime.tf_config import TFConfig
from estimator_runtime.waits import LOCAL_WAITS, PS_GRACE_VARIABLE

_PORT = 2222
_CLAIM_PATH = "/checkpoints"
# A step and its checkpoint, at SIGTERM; a ps stays for as long as a trainer is there.
_GRACE_SECS = 60
# Of the user in the Dockerfile; a test compares them.
_GROUP = 1000
_INDEX = "TASK_INDEX"
# What a pod knows of itself; text that is not there is empty.
_FIELDS = {
    _INDEX: "metadata.annotations['batch.kubernetes.io/job-completion-index']",
    # From JobSet 0.9 on.
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
# With "-evaluator-0-0" behind it, a host name may have 63 characters.
_MAX_NAME = 40
_NAME_OF_OTHERS = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?\Z")


class KubernetesBackend:
    """Renders jobs as a JobSet and a claim for the volume of its checkpoints.

    Attributes:
        image: The container image, which has this package and the program.
        name: The name of all that is made.
        storage: Size of the volume, such as "10Gi", which is the default.
        storage_class: That of the claim; None for the default of the cluster.
        claim: An existing claim to use; None to make one.
        fs_group: The group that may write to the volume, and that all pods are in;
            by default that of the user in the Dockerfile.
    """

    def __init__(
        self,
        *,
        image,
        name,
        storage=None,
        storage_class=None,
        claim=None,
        fs_group=None,
    ):
        """Check the options.

        Raises:
            ConfigError: If a name cannot be one in Kubernetes, the group is no number
                of one, or an existing claim is described.
        """
        if not _NAME.match(name) or len(name) > _MAX_NAME:
            raise ConfigError(
                f"name is {name!r}; give one of at most {_MAX_NAME} small letters, "
                "digits and hyphens, which begins with a letter: --name NAME"
            )
        for flag, given in (("--claim", claim), ("--storage-class", storage_class)):
            if given is not None and not _NAME_OF_OTHERS.match(given):
                raise ConfigError(
                    f"{flag} is {given!r}; give its name in the cluster, of small "
                    "letters, digits, hyphens and points"
                )
        if claim is not None and (storage, storage_class) != (None, None):
            raise ConfigError(
                f"the claim {claim!r} is one that exists; leave out --storage and "
                "--storage-class, or --claim to make one"
            )
        self.fs_group = _GROUP if fs_group is None else fs_group
        if self.fs_group < 0:
            raise ConfigError(f"--fs-group is {fs_group}; give the number of a group")
        self.image, self.name, self.claim = image, name, claim
        self.storage, self.storage_class = storage or "10Gi", storage_class

    def render(self, job):
        """Give the manifests of a `Job` as YAML, for `kubectl apply -f`.

        Raises:
            ConfigError: If a task takes a part of a GPU.
        """
        for asked in job.resources.values():
            if asked.gpus != int(asked.gpus):
                raise ConfigError(
                    f"a task takes {asked.gpus:g} GPU, and Kubernetes gives whole ones "
                    "only; give a whole number with --gpus-per-worker"
                )
        if self.claim is not None:
            return yaml_text.documents([self._job_set(job)])
        note = _NOTE.format(name=self.name)
        return note + yaml_text.documents([self._new_claim(), self._job_set(job)])

    @property
    def _claim_name(self):
        return self.claim or f"{self.name}-checkpoints"

    def _new_claim(self):
        chosen = {"storageClassName": self.storage_class} if self.storage_class else {}
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": self._claim_name},
            "spec": {
                **chosen,
                # Trainers and the evaluator are on several nodes.
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": self.storage}},
            },
        }

    def _job_set(self, job):
        types = list(dict.fromkeys(task.type for task in job.tasks))
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": self.name},
            "spec": {
                "network": {"enableDNSHostnames": True, "subdomain": self.name},
                # A ps and an evaluator end by themselves, when they are done.
                "successPolicy": {"operator": "All"},
                # Not before all pods are gone: new ones would meet old ones under the
                # same names, which still save.
                "failurePolicy": {
                    "maxRestarts": job.max_restarts,
                    "restartStrategy": "BlockingRecreate",
                },
                "replicatedJobs": [self._replicated_job(job, each) for each in types],
            },
        }

    def _replicated_job(self, job, task_type):
        count = job.replicas[task_type]
        # Trainers without a ps only start together: the JobSet does that. Others come
        # back alone, as often as they may, before the JobSet starts all anew.
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
                    # Where containers are started again in their pods, the Job has
                    # failed at the restart with this number, and not after it.
                    "backoffLimit": restarts + 1 if restarts else 0,
                    # Not beside a pod that is told to end and still saves.
                    "podReplacementPolicy": "Failed",
                    "template": {"spec": self._pod(job, task_type, restarts)},
                }
            },
        }

    def _pod(self, job, task_type, restarts):
        claim = self._claim_name
        return {
            "restartPolicy": "OnFailure" if restarts else "Never",
            "terminationGracePeriodSeconds": _GRACE_SECS,
            # Else the task is process 1, which SIGTERM does not end: who has no handler
            # for it, such as an evaluator, would take all of that time.
            "shareProcessNamespace": True,
            "securityContext": {
                "fsGroup": self.fs_group,
                "fsGroupChangePolicy": "OnRootMismatch",
            },
            "containers": [self._container(job, task_type)],
            "volumes": [
                {"name": "checkpoints", "persistentVolumeClaim": {"claimName": claim}}
            ],
        }

    def _container(self, job, task_type):
        asked = job.resources.get(task_type)
        amounts = {}
        if asked is not None:
            amounts["cpu"] = f"{asked.cpus:g}"
            if asked.gpus:
                amounts["nvidia.com/gpu"] = f"{asked.gpus:g}"
        grace = {PS_GRACE_VARIABLE: str(_GRACE_SECS - 5)}  # and then it ends by itself
        of_ps = grace if task_type == TaskType.PS else {}
        environ = {**LOCAL_WAITS, **of_ps, **job.env}
        return {
            "name": task_type,
            "image": self.image,
            "command": ["estimator-runtime", "run", *map(_literal, job.command)],
            "env": [
                *(
                    {"name": name, "value": _literal(value)}
                    for name, value in environ.items()
                ),
                *(
                    {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
                    for name, path in _FIELDS.items()
                ),
                {"name": "TF_CONFIG", "value": self._tf_config(job, task_type)},
            ],
            "ports": [{"containerPort": _PORT}],
            "resources": {"requests": amounts, "limits": amounts},
            "volumeMounts": [{"name": "checkpoints", "mountPath": _CLAIM_PATH}],
        }

    def _tf_config(self, job, task_type):
        """Give TF_CONFIG with a reference that Kubernetes replaces by the index."""
        jobs = {
            each: [
                # Of the one Job of this type, the pod with this index.
                f"{self.name}-{each}-0-{index}.{self.name}:{_PORT}"
                for index in range(count)
            ]
            for each, count in job.replicas.items()
            if count and (each != TaskType.EVALUATOR or job.is_gang)
        }
        config = TFConfig(
            cluster=Cluster(jobs), task_type=task_type, task_index=0
        ).to_json()
        content = json.loads(config)
        content["task"]["index"] = _INDEX
        return json.dumps(content).replace(f'"{_INDEX}"', f"$({_INDEX})")


def _literal(text):
    """Write what Kubernetes takes for this text: it replaces $(NAME), and $$ by $."""
    return text.replace("$", "$$")
