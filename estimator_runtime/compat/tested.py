"""The sets of packages that the tests pass with, one for each TensorFlow.

The same as constraints/ of the repository, which an installed package does not have.
"""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class PackageSet:
    """Versions that were tested together.

    Attributes:
        tensorflow: Version of TensorFlow; the other attributes as well, of theirs.
        tf_keras: Of tf-keras.
        numpy: Of numpy; more than one where an older Python needs an older one.
        protobuf: Of protobuf.
        pythons: Each as "3.11".
    """

    tensorflow: str
    tf_keras: str
    numpy: tuple[str, ...]
    protobuf: str
    pythons: tuple[str, ...] = ("3.11", "3.12")

    @property
    def constraints(self):
        """The file of the repository that pip installs this set with."""
        return f"constraints/tf-{self.tensorflow.rpartition('.')[0]}.txt"

    def differences(self, found):
        """Say how other versions differ from these.

        Args:
            found: Package (and "python") to version, as `report.Report` has them.

        Returns:
            One text for each that differs, such as "numpy 1.26.4 instead of 2.4.6".
        """
        tested = {
            "tensorflow": (self.tensorflow,),
            "tf-keras": (self.tf_keras,),
            "numpy": self.numpy,
            "protobuf": (self.protobuf,),
        }
        others = [
            f"{name} {found[name]} instead of {' or '.join(versions)}"
            for name, versions in tested.items()
            if found[name] not in versions
        ]
        python = ".".join(found["python"].split(".")[:2])
        if python not in self.pythons:
            others.append(f"python {python} instead of {' or '.join(self.pythons)}")
        return others


# TensorFlow's (major, minor) to what was tested with it.
TESTED = {
    (2, 15): PackageSet(
        tensorflow="2.15.1",
        tf_keras="2.15.1",
        numpy=("1.26.4",),
        protobuf="4.25.9",
        pythons=("3.10", "3.11"),
    ),
    (2, 16): PackageSet(
        tensorflow="2.16.2", tf_keras="2.16.0", numpy=("1.26.4",), protobuf="4.25.9"
    ),
    (2, 17): PackageSet(
        tensorflow="2.17.1", tf_keras="2.17.0", numpy=("1.26.4",), protobuf="4.25.9"
    ),
    (2, 18): PackageSet(
        tensorflow="2.18.1", tf_keras="2.18.0", numpy=("2.0.2",), protobuf="5.29.6"
    ),
    (2, 19): PackageSet(
        tensorflow="2.19.1", tf_keras="2.19.0", numpy=("2.1.3",), protobuf="5.29.6"
    ),
    (2, 20): PackageSet(
        tensorflow="2.20.0", tf_keras="2.20.1", numpy=("2.4.6",), protobuf="7.36.2"
    ),
    (2, 21): PackageSet(
        tensorflow="2.21.0",
        tf_keras="2.21.0",
        numpy=("2.4.6", "2.2.6"),
        protobuf="7.36.2",
        pythons=("3.10", "3.11", "3.12", "3.13"),
    ),
}
