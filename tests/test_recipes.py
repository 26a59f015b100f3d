"""Recipes of docs/how_do_i.md for schedulers, run with stand-ins for the schedulers."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import jsonschema
import kubernetes_validate
import pytest
import yaml

TESTS = pathlib.Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "how_do_i.md").read_text()
# Stand-ins for commands of SLURM, for a batch job on the nodes 127.0.0.2 to 127.0.0.5.
SCONTROL = """#!/bin/sh
[ "$*" = "show hostnames nodes[2-5]" ] && printf "127.0.0.%s\\n" 2 3 4 5
"""
SRUN = """#!/bin/bash
export SLURM_JOB_NODELIST="nodes[2-5]"
for task in 0 1 2 3; do SLURM_PROCID=$task "$@" & tasks+=($!); done
for task in "${tasks[@]}"; do wait "$task" || status=1; done
exit ${status:-0}
"""


def block(begins):
    [found] = re.findall(rf"^```\w+\n({re.escape(begins)}.*?)^```$", PAGE, re.M | re.S)
    return found


@pytest.mark.timeout(300)
def test_the_batch_script_makes_a_cluster_that_trains(tmp_path):
    script = block("# sbatch")
    [wrapped] = re.findall(r"--wrap '(.*)'", script)
    shutil.copy(TESTS / "launch" / "programs" / "train.py", tmp_path)
    (tmp_path / "task.sh").write_text(script)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    path = os.pathsep.join(
        [str(tools), os.path.dirname(sys.executable), os.environ["PATH"]]
    )
    done = subprocess.run(
        ["sh", "-c", wrapped],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    [folder] = {each.parent for each in tmp_path.rglob("training_finished.json")}
    assert list(folder.glob("model.ckpt-*.index"))


# What TFJob v1 of the training operator allows, without the template of the pods, which
# is that of Kubernetes. From kubeflow.org_tfjobs.yaml of v1.9.
_NUMBER, _TEXT, _SWITCH = ({"type": each} for each in ("integer", "string", "boolean"))


def _fields(**fields):
    return {"type": "object", "properties": fields, "additionalProperties": False}


_TASK = _fields(replicas=_NUMBER, restartPolicy=_TEXT, template={"type": "object"})
_TF_JOB = _fields(
    apiVersion=_TEXT,
    kind=_TEXT,
    metadata={"type": "object"},
    spec=_fields(
        enableDynamicWorker=_SWITCH,
        successPolicy=_TEXT,
        runPolicy=_fields(
            activeDeadlineSeconds=_NUMBER,
            backoffLimit=_NUMBER,
            cleanPodPolicy=_TEXT,
            schedulingPolicy={"type": "object"},
            suspend=_SWITCH,
            ttlSecondsAfterFinished=_NUMBER,
        ),
        tfReplicaSpecs=_fields(
            Chief=_TASK, Master=_TASK, Worker=_TASK, PS=_TASK, Evaluator=_TASK
        ),
    ),
)


def test_the_tf_job_is_what_the_operator_takes():
    job = yaml.safe_load(block("apiVersion: kubeflow.org/v1"))
    jsonschema.validate(job, _TF_JOB)
    tasks = job["spec"]["tfReplicaSpecs"]
    assert [tasks[name]["replicas"] for name in ("Chief", "Worker", "PS")] == [1, 2, 1]
    for task in tasks.values():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}
        pod["spec"] = task["template"]["spec"]
        kubernetes_validate.validate(pod, "1.37", strict=True)
        # The operator gives TF_CONFIG and the port to the container of this name.
        assert [each["name"] for each in pod["spec"]["containers"]] == ["tensorflow"]
