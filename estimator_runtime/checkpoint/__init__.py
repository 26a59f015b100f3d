"""Checkpoints that cost little and are not lost: when, what, how and where.

`hook` and `interval` say when one is saved, `snapshot` what is in it, `writer` and
`bundle_writer` how it is written, `series` which of a training there are, and the other
modules where they lie: `files`, `state`, `commit`, `leftovers`, `look`, `recovery`,
`retention`. Those of the last group need no TensorFlow.
"""
