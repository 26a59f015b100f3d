"""The data of a checkpoint is written whole, with or without the system's cache."""

import errno
import fcntl
import os

import numpy as np
import pytest
from crc32c import crc32c

from estimator_runtime.checkpoint.tensor_bundle.data_file import DataFile

MEGABYTE = 1 << 20
# Bytes of the arrays that are written one behind the other.
SIZES = {
    "nothing": [],
    "empty arrays": [0, 0],
    "one byte": [1],
    "small ones": [3, 4093, 0, 4096, 1, 5000],
    "a block": [4096],
    "a buffer": [4 * MEGABYTE],
    "over a buffer's end": [4 * MEGABYTE - 7, 100, 9 * MEGABYTE + 1, 3],
}


def arrays(sizes):
    return [np.random.default_rng(i).bytes(size) for i, size in enumerate(sizes)]


def write(path, contents):
    with DataFile(path) as file:
        for content in contents:
            before = file.bytes
            checksum = file.write(np.frombuffer(content, np.uint8))
            assert checksum == crc32c(content)
            assert file.bytes == before + len(content)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_all_is_written_and_no_more(tmp_path, sizes):
    path = tmp_path / "data"
    path.write_bytes(b"of an older one" * MEGABYTE)
    contents = arrays(sizes)
    write(path, contents)
    assert path.read_bytes() == b"".join(contents)


def test_an_array_of_any_order_is_written_row_by_row(tmp_path):
    array = np.arange(12, dtype=np.float64).reshape(3, 4)
    with DataFile(tmp_path / "data") as file:
        file.write(array.T)
        file.write(array[:, ::2])
    expected = array.T.tobytes() + array[:, ::2].tobytes()
    assert (tmp_path / "data").read_bytes() == expected


@pytest.mark.parametrize("name", ["EINVAL", "EPERM"])
def test_a_file_system_that_refuses_to_open_it_so_is_written_through_the_cache(
    name, tmp_path, monkeypatch
):
    real, flags = os.open, []

    def refusing(path, flag, *mode):
        flags.append(bool(flag & os.O_DIRECT))
        if flags[-1]:
            raise OSError(getattr(errno, name), name)
        return real(path, flag, *mode)

    monkeypatch.setattr(os, "open", refusing)
    write(tmp_path / "data", [b"content"])
    monkeypatch.undo()
    assert flags == [True, False]
    assert (tmp_path / "data").read_bytes() == b"content"


@pytest.mark.parametrize("name", ["EINVAL", "EOPNOTSUPP"])
def test_a_file_system_that_refuses_to_write_it_so_is_written_through_the_cache(
    name, tmp_path, monkeypatch
):
    real = os.write

    def refusing(descriptor, data):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(getattr(errno, name), name)
        return real(descriptor, data)

    contents = arrays(SIZES["over a buffer's end"])
    monkeypatch.setattr(os, "write", refusing)
    write(tmp_path / "data", contents)
    monkeypatch.undo()
    assert (tmp_path / "data").read_bytes() == b"".join(contents)


def test_an_error_is_raised_and_the_file_closed(tmp_path):
    open_before = os.listdir("/proc/self/fd")
    with pytest.raises(FileNotFoundError):
        DataFile(tmp_path / "missing" / "data")
    with (
        pytest.raises(OSError, match="No space left on device"),
        DataFile("/dev/full") as file,
    ):
        file.write(np.zeros(5 * MEGABYTE, np.uint8))
    assert os.listdir("/proc/self/fd") == open_before
