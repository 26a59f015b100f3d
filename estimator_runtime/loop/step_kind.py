"""The ways in which a session runs a step, and how it chooses one of them.

The page "How a step runs" (docs/how_a_step_runs.md) has this table.
"""

import dataclasses
import enum


class StepKind(enum.Enum):
    """The way in which a call of a session has run."""

    FUSED = "fused"
    IDLE = "idle"
    PLANNED = "planned"
    PACKED = "packed"
    STOCK = "stock"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """When a call runs in a way, and what that means.

    Attributes:
        kind: The way.
        when: The condition. The first rule of the table that applies decides.
        runs: What is run.
        hooks: At which steps hooks are called.
        thread: The threads that run the ops.
    """

    kind: StepKind
    when: str
    runs: str
    hooks: str
    thread: str


_BY_RULE = "the calling thread if the request is small, else TensorFlow's pool"

RULES = (
    Rule(
        kind=StepKind.FUSED,
        when="`steps_per_run` is not 1, no hook has anything to do at the next steps, "
        "the step can be in a loop, and the program asks for nothing but this step",
        runs="several steps in one call of the session",
        hooks="not called",
        thread=_BY_RULE,
    ),
    Rule(
        kind=StepKind.IDLE,
        when="no hook has anything to do at this step",
        runs="the plan of the step before",
        hooks="not called",
        thread=_BY_RULE,
    ),
    Rule(
        kind=StepKind.PLANNED,
        when="the session is of this process, and the call has no feeds, run options "
        "or run metadata",
        runs="a request that is compiled once",
        hooks="called",
        thread=_BY_RULE,
    ),
    Rule(
        kind=StepKind.PACKED,
        when="the session has a gRPC master, transfers are to be packed, and the step "
        "can be copied",
        runs="a copy of the step that sends fewer, larger tensors",
        hooks="called",
        thread="TensorFlow's pool in each task",
    ),
    Rule(
        kind=StepKind.STOCK,
        when='in all other cases, and for each step with `loop="stock"`',
        runs="`Session.run`",
        hooks="called",
        thread="TensorFlow's pool",
    ),
)
