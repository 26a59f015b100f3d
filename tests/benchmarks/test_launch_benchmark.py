"""The launch benchmark: its table, and the processes it starts."""

import json

import pytest

from benchmarks.__main__ import main
from benchmarks.launch import benchmark


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        (None, [], "No such file or directory"),
        ("{", [], "Expecting property name"),
        ("[]", [], "no benchmark has written this; give its NAME.json"),
        ('{"benchmark": "launch"}', ["--against", "x"], "--against is 'x', but launch"),
        (
            '{"benchmark": "steps", "models": {"a": {"contenders": {"stock": {}}}}}',
            ["--against", "x"],
            "has no contender 'x'; give stock",
        ),
    ],
)
def test_a_file_that_is_no_report_is_one_line(content, options, said, tmp_path, capsys):
    path = tmp_path / "launch.json"
    if content is not None:
        path.write_text(content)
    assert main(["table", str(path), *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"benchmarks table: error: {path}: {said}")


def test_plain_processes_get_the_cluster_of_the_job_each_as_its_own_task():
    commands = benchmark._commands("stock", "ps", ("program.py",))
    configs = [json.loads(variables["TF_CONFIG"]) for _, variables in commands]
    assert [(c["task"]["type"], c["task"]["index"]) for c in configs] == [
        ("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0),
    ]  # fmt: skip
    sizes = {job: len(tasks) for job, tasks in configs[0]["cluster"].items()}
    assert sizes == {"chief": 1, "worker": 2, "ps": 1}
    assert all(each["cluster"] == configs[0]["cluster"] for each in configs)
    # Stock's, whatever the environment would bring in.
    assert all(v["ESTIMATOR_RUNTIME_AUTO"] == "0" for _, v in commands)
