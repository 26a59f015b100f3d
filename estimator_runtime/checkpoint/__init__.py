"""Checkpoints that cost little and are not lost: when, what, how and where.

`hook` says when one is saved, `snapshot` what is in it, `writer` how it is written, and
the other modules where it lies: `files`, `state`, `commit`, `recovery`, `retention`.
Those of the last group need no TensorFlow.
"""
