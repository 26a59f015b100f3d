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
from estimator_runtime.role import TaskType
from estimator_runtime.tf_config import TFConfig
from estimator_runtime.waits import LOCAL_WAITS

_PORT = 2222
_CLAIM_PATH = "/checkpoints"
# A step and its checkpoint, at SIGTERM; the ps waits until the chief has saved.
_GRACE_SECS = 60
_INDEX = "TASK_INDEX"
_INDEX_FIELD = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?\Z")
# With "-evaluator-0-0" behind it, a host name may have 63 characters.
_MAX_NAME = 40


class KubernetesBackend:
    """Renders jobs as a JobSet and a claim for the volume of its checkpoints.

    Attributes:
        image: The container image, which has this package and the program.
        name: The name of all that is made.
        storage: Size of the volume, such as "10Gi".
    """

    def __init__(self, *, image, name, storage="10Gi"):
        """Check the options.

        Raises:
            ConfigError: If the name cannot be one in Kubernetes.
        """
        if not _NAME.match(name) or len(name) > _MAX_NAME:
            raise ConfigError(
                f"name is {name!r}; give one of at most {_MAX_NAME} small letters, "
                "digits and hyphens, which begins with a letter: --name NAME"
            )
        self.image, self.name, self.storage = image, name, storage

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
        return yaml_text.documents([self._claim(), self._job_set(job)])

    def _claim(self):
        return {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": f"{self.name}-checkpoints"},
            "spec": {
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
                "failurePolicy": {"maxRestarts": job.max_restarts},
                "replicatedJobs": [self._replicated_job(job, each) for each in types],
            },
        }

    def _replicated_job(self, job, task_type):
        count = job.replicas[task_type]
        # Trainers without a ps only start together: the JobSet does that. Others come
        # back alone, as often as they may, before the JobSet starts all anew.
        alone = not job.is_gang or task_type == TaskType.EVALUATOR
        return {
            "name": task_type,
            "replicas": 1,
            "template": {
                "spec": {
                    "completionMode": "Indexed",
                    "completions": count,
                    "parallelism": count,
                    "backoffLimit": job.max_restarts * count if alone else 0,
                    "template": {"spec": self._pod(job, task_type, alone)},
                }
            },
        }

    def _pod(self, job, task_type, alone):
        claim = f"{self.name}-checkpoints"
        return {
            "restartPolicy": "OnFailure" if alone else "Never",
            "terminationGracePeriodSeconds": _GRACE_SECS,
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
        environ = {**LOCAL_WAITS, **job.env}
        return {
            "name": task_type,
            "image": self.image,
            "command": ["estimator-runtime", "run", *job.command],
            "env": [
                *({"name": name, "value": value} for name, value in environ.items()),
                {
                    "name": _INDEX,
                    "valueFrom": {"fieldRef": {"fieldPath": _INDEX_FIELD}},
                },
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
