"""What stops a run, in the user's words."""


class StreamError(Exception):
    """A run cannot start or go on; the message says why and what to do."""


class Stopped(Exception):
    """The user asked to end while the run was waiting for more rows."""


class CheckpointError(StreamError):
    """A checkpoint file is damaged, or is not the one asked for."""
