"""Session hooks of this runtime."""

# What a session calls at each step. A hook that has its own, set on itself and not by
# its class, is not what its class says.
STEP_METHODS = frozenset({"before_run", "after_run"})
