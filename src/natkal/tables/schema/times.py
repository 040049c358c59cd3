"""Moments as numbers: seconds since 1970, UTC unless a moment names its zone."""

import datetime
from collections.abc import Sequence

import numpy as np

EPOCH = datetime.datetime(1970, 1, 1)
EPOCH_UTC = EPOCH.replace(tzinfo=datetime.UTC)


def seconds(moments: Sequence[datetime.datetime | None]) -> np.ndarray:
    """Seconds since 1970 of each moment, NaN where it is missing."""
    found = np.full(len(moments), np.nan)
    for row, moment in enumerate(moments):
        if moment is not None:
            found[row] = (moment - (EPOCH if moment.tzinfo is None else EPOCH_UTC)).total_seconds()
    return found


def moment_at(value: float) -> datetime.datetime:
    """The moment so many seconds after 1970, without a zone."""
    return EPOCH + datetime.timedelta(seconds=value)
