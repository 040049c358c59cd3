"""Blocks of encoded rows: parts of them, several as one, room for more columns."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from natkal.tables.encode.encoder import Encoded
from natkal.tables.table import TableLearner


def by_classes(encoded: Encoded, learner: TableLearner, add_classes: Callable[[int, int], None]) -> Iterator[Encoded]:
    """The rows in parts that there is room for: a class beyond it makes more, from its first row on."""
    first = 0
    while first < len(encoded.targets):
        room = [target.classes or np.inf for target in learner.targets]
        beyond = encoded.targets[first:] >= room
        if first == 0 and not beyond.any():
            yield encoded
            return
        last = first + (int(np.argmax(beyond.any(axis=1))) if beyond.any() else len(beyond))
        if last > first:
            yield rows_of(encoded, slice(first, last))
        if last < len(encoded.targets):
            for position in np.flatnonzero(beyond[last - first]):
                add_classes(int(position), int(encoded.targets[last, position]) + 1)
        first = last


def rows_of(encoded: Encoded, rows: slice | np.ndarray) -> Encoded:
    """Some of the rows."""
    places = range(len(encoded.lines))[rows] if isinstance(rows, slice) else rows.tolist()
    return encoded._replace(
        inputs=encoded.inputs[rows],
        targets=encoded.targets[rows],
        keys=[encoded.keys[place] for place in places] if encoded.keys else [],
        sequences=[encoded.sequences[place] for place in places] if encoded.sequences else [],
        lines=encoded.lines[rows],
        rejects=[],
        times=None if encoded.times is None else encoded.times[rows],
        resets=None if encoded.resets is None else encoded.resets[rows],
        waited=[encoded.waited[place] for place in places] if encoded.waited else (),
    )


def joined(parts: Sequence[Encoded]) -> Encoded:
    """Rows of one shape, one after the other."""
    if len(parts) == 1:
        return parts[0]
    count = sum(len(part.inputs) for part in parts)
    resets = [part.resets for part in parts if part.resets is not None]
    each = [part.waited or [None] * len(part.inputs) for part in parts]
    return parts[0]._replace(
        inputs=np.concatenate([part.inputs for part in parts]),
        targets=np.concatenate([part.targets for part in parts]),
        keys=[key for part in parts for key in part.keys],
        sequences=[name for part in parts for name in part.sequences],
        lines=np.arange(1, count + 1),
        resets=np.concatenate(resets) if resets else None,
        waited=[one for part in each for one in part] if any(part.waited for part in parts) else (),
    )


def wider(inputs: np.ndarray, width: int) -> np.ndarray:
    """Rows with room for columns that came later, missing in these."""
    missing = np.full((len(inputs), width - inputs.shape[1]), np.nan)
    return np.concatenate([inputs, missing], axis=1) if missing.shape[1] else inputs
