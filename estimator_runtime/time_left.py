"""How long a training still takes, for people."""


def time_left(step, last_step, rate):
    """Give the time left as "H:MM:SS"; None if nobody can know.

    Args:
        step: Global step.
        last_step: That at which the training ends, or None.
        rate: Steps a second, or None.
    """
    if last_step is None or not rate or rate <= 0:
        return None
    minutes, secs = divmod(round(max(0, last_step - step) / rate), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{secs:02}"
