"""What stops a run, in the user's words."""


class StreamError(Exception):
    """A run cannot start or go on; the message says why and what to do."""


class CheckpointError(StreamError):
    """A checkpoint file is damaged, or is not the one asked for."""
