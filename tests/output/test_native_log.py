"""Whether a machine has a GPU, by its device files."""

from estimator_runtime.output import native_log


def test_a_gpu_is_there_when_its_device_file_is(tmp_path):
    patterns = (str(tmp_path / "nvidia[0-9]*"), str(tmp_path / "kfd"))
    (tmp_path / "nvidiactl").touch()  # of a driver that found none
    assert not native_log.are_here(patterns)
    (tmp_path / "nvidia0").touch()
    assert native_log.are_here(patterns)
