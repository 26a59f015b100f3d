"""Checkpoints: when and how they are saved, where they are kept, and their restore.

* `hook` and `interval` decide when a checkpoint is saved.
* `save` takes a snapshot of its content, and writes it while training continues.
* `store` has the checkpoints of a folder: their locks, their state file, and which of
  them are kept.
* `restore` finds the checkpoint that training continues from.
* `tensor_bundle` reads and writes the files of one checkpoint.
* `best`, `inventory` and `cost` are about all checkpoints of a training: the best ones,
  a list for the command line, and what they cost.

Throughout, `prefix` is the path of a checkpoint without suffix, such as
"/ckpt/model.ckpt-100", `folder` the path of a local folder, and `step` a global step.

`hook`, `store.series`, `restore.session_creator`, `tensor_bundle.writer` and `save`,
except `save.writer`, import TensorFlow. The other modules do not.
"""
