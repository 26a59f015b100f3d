"""Checkpoints: when and how they are saved, where they are kept, and their restore.

Read `checkpoint` first: it says what a checkpoint is. A save then goes through

* `hook`: is a checkpoint due? `interval` follows the cost, which `cost` measures;
* `save`: takes a snapshot of the values, and writes it while training continues;
* `tensor_bundle`: writes, reads and checks the files of one checkpoint;
* `store`: commits them to the folder, names them in the state file, and deletes
  old ones.

`restore` chooses the checkpoint that training continues from. `best` keeps the best
ones, and `inventory` lists all of them for the command line.

Throughout, `prefix` is the path of a checkpoint without suffix, such as
"/ckpt/model.ckpt-100", `folder` the path of a local folder, and `step` a global step.

`hook`, `store.series`, `restore.session_creator`, `tensor_bundle.writer` and `save`,
except `save.writer`, import TensorFlow. The other modules do not.
"""
