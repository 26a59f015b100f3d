"""What is shown of Ray's errors, in one line."""

import re


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
