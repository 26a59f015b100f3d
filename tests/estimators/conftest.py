"""Real images of handwritten digits for every test that trains."""

import dataclasses
import gzip
import pathlib

import numpy as np
import pytest

import estimator_runtime as er

er.install()

import tensorflow as tf  # noqa: E402 (after install, as a program would)

DATA = pathlib.Path(__file__).parents[2] / "examples" / "data" / "digits.csv.gz"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Digits:
    """8x8 images as rows of 64 pixels from 0 to 1, with the digits they show.

    Attributes:
        images: The 1,500 images to train on.
        labels: Their digits, 0 to 9.
        held_out_images: 297 other images.
        held_out_labels: Their digits.
    """

    images: np.ndarray
    labels: np.ndarray
    held_out_images: np.ndarray
    held_out_labels: np.ndarray

    def to_train(self, batch_size=64):
        """Return an input_fn of endless, shuffled batches to train on."""
        return lambda: (
            tf.data.Dataset.from_tensor_slices(({"pixels": self.images}, self.labels))
            .shuffle(len(self.labels))
            .repeat()
            .batch(batch_size)
        )

    def held_out(self):
        """Return an input_fn of one ordered pass over the images held out."""
        return lambda: tf.data.Dataset.from_tensor_slices(
            ({"pixels": self.held_out_images}, self.held_out_labels)
        ).batch(100)


def load_digits():
    """Read the images, in an order and a split that are always the same."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.int32)
    table = table[np.random.RandomState(0).permutation(len(table))]
    images, labels = (table[:, :64] / 16).astype(np.float32), table[:, 64]
    return Digits(
        images=images[:1500],
        labels=labels[:1500],
        held_out_images=images[1500:],
        held_out_labels=labels[1500:],
    )


@pytest.fixture(scope="session")
def digits():
    """The images, read once."""
    return load_digits()
