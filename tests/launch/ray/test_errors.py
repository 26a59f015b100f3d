"""What is shown of Ray's errors, in one line."""

import re


def test_an_error_of_several_lines_is_one():
    from estimator_runtime.launch.backends.ray.errors import brief

    error = RuntimeError(
        "Version mismatch: The cluster was started with:\n    Ray: 2.59.0\n"
    )
    assert brief(error) == (
        "Version mismatch: The cluster was started with: Ray: 2.59.0"
    )


def test_of_an_actor_that_is_gone_it_is_why_cut_and_without_numbers():
    from ray.core.generated.common_pb2 import ActorDiedErrorContext
    from ray.exceptions import ActorDiedError

    from estimator_runtime.launch.backends.ray.errors import brief

    def shown(message):
        context = ActorDiedErrorContext(
            actor_id=b"0" * 16, class_name="TaskActor", error_message=message
        )
        return brief(ActorDiedError(context))

    gone = (
        "The actor died because its node has died. Node Id: 3cb819df\n"
        "\tthe actor's node was terminated unexpectedly: too few heartbeats"
    )
    assert shown(gone) == (
        "The actor died because its node has died. the actor's node was terminated "
        "unexpectedly: too few heartbeats"
    )
    advised = shown("Its worker process has died. " + "Advice. " * 50)
    assert re.fullmatch(r"Its worker process has died\. (Advice\. )+.*\.\.\.", advised)
    assert len(advised) <= 300


def test_of_an_actor_that_could_not_be_made_it_is_the_last_line_of_its_error():
    from ray.exceptions import ActorDiedError, RayTaskError

    from estimator_runtime.launch.backends.ray.errors import brief

    cause = FileNotFoundError(2, "No such file or directory", "/folder")
    traceback = f"Traceback (most recent call last):\nFileNotFoundError: {cause}"
    error = RayTaskError("__init__", traceback, cause, pid=1, ip="10.0.0.1")
    assert brief(ActorDiedError(error)) == (
        "FileNotFoundError: [Errno 2] No such file or directory: '/folder'"
    )
