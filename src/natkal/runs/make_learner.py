"""The learner of a run, from its settings and its first rows."""

from collections.abc import Sequence

import numpy as np

from natkal.errors import StreamError
from natkal.settings.options import past_lags
from natkal.settings.settings import Settings
from natkal.tables.encode.encoder import Encoder
from natkal.tables.engine.pooled_table import PooledTable
from natkal.tables.schema.rows import Rows
from natkal.tables.table import TableLearner, TargetShape


def table_kind(settings: Settings) -> type[TableLearner]:
    """A learner whose keys have nothing in common, or one whose keys are a population."""
    return PooledTable if settings.pool else TableLearner


def check_pool(settings: Settings) -> None:
    """Refuse to pool what has no keys, or a model whose covariance is not kept in full."""
    if not settings.pool:
        return
    if settings.key is None:
        raise StreamError("--pool: is for a model for each key; name the column with --key")
    if settings.model not in ("auto", "linear"):
        raise StreamError(f"--pool: is for models with a full covariance, auto or linear; got --model {settings.model}")


def make_learner(settings: Settings, encoder: Encoder, first: Sequence[Rows]) -> TableLearner:
    """The learner for the columns of a run; the scales of a population are those of the first rows."""
    if not encoder.width and past_lags(settings.options.past) == ():
        raise StreamError("there is nothing to predict from: no feature column, and --past none; leave --past out")
    targets = [
        TargetShape(target.task, max(len(target.classes), 2), len(target.classes))
        if target.classes
        else TargetShape(target.task)
        for target in encoder.schema.targets
    ]
    learner = table_kind(settings)(
        settings.options,
        encoder.scaled.tolist(),
        targets,
        keyed=encoder.schema.key is not None,
        limits=settings.predictions is not None,
        in_order=not (settings.label_delay or settings.id),
    )
    if isinstance(learner, PooledTable):
        learner.know_first_rows(*first_numbers(encoder, first, settings.sample))
    return learner


def first_numbers(encoder: Encoder, first: Sequence[Rows], sample: int) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Inputs, targets and keys of the first rows; the encoder itself does not see them."""
    probe = Encoder(encoder.schema)
    blocks = []
    for rows in first:
        blocks.append(probe.encode(rows.part(0, min(len(rows), sample))))
        probe.accept(blocks[-1].additions)
    inputs = np.concatenate([block.inputs for block in blocks])[:sample]
    targets = np.concatenate([block.targets for block in blocks])[:sample]
    return inputs, targets, [key for block in blocks for key in block.keys][:sample]


def check_memory(settings: Settings) -> None:
    """Refuse what only makes sense for a model with memory, or only for one without."""
    if not settings.options.has_memory:
        if settings.sequence is not None:
            raise StreamError("--sequence: is for models with memory (--model gru:8, lru:64, ...)")
    elif settings.label_delay or settings.id:
        option = "--label-delay" if settings.label_delay else "--id"
        raise StreamError(f"{option}: a model with memory must learn the rows in their order; use one without")
