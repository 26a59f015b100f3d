"""The ways in which a session runs a step."""

import enum


class StepKind(enum.Enum):
    """The way in which a call of a session has run.

    The first one whose conditions hold is chosen. The page "How a step runs"
    (docs/how_a_step_runs.md) has them in a table.
    """

    FUSED = "fused"
    IDLE = "idle"
    PLANNED = "planned"
    PACKED = "packed"
    STOCK = "stock"
