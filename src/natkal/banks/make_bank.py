"""`nk.bank`: a bank from learners, or from a function and a grid of its values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from natkal.banks.bank import Bank
from natkal.banks.group import families_of, from_grid, from_learners
from natkal.engine import Learner
from natkal.laws import Laws, OwnPrediction, marginal_for


def bank(
    learners: Sequence[Any] | Callable[..., Learner],
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    share: float = 1e-3,
    laws: Laws | None = None,
    never_worse_than: Learner | None = None,
) -> Bank:
    """Learners side by side, their predictions mixed by how likely each made the data so far.

    `learners` is a list of learners of the same observations, or a function that makes one from the names of `grid`,
    whose points then all run; those that differ in numbers only (prior, fading, prior weight) are computed as one. The
    mixture's log loss is never above that of its best member by more than `regret_bound`: ln(M) in all for `share` 0,
    and up to `share` nats a row more for others. `share` lets weights come back when another member becomes the best:
    that much of the weight is dealt out evenly at each step. `laws` are the predictive laws around each member's
    prediction, its own unless given; where they are, the law of the targets' own past stands beside the members.
    `never_worse_than` is one more member, which the log loss is never more than ln 2 above, over any stream: around the
    whole stands a Bayes mixture of two, the bank and that member with its laws, without share.

    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
    >>> mixed = nk.bank([nk.online(model, prior_cov=cov) for cov in (0.1, 10.0)], share=0.0)
    >>> state, info = nk.run(mixed, mixed.init(), jnp.ones(9), jnp.full(9, 3.0))
    >>> mixed.size, round(float(mixed.best(state)[1].params), 2)  # the wide prior was right
    (2, 2.97)
    """
    if not 0 <= share < 1:
        raise ValueError(f"share: must lie in [0, 1), got {share}")
    if callable(learners):
        if grid is None:
            raise ValueError("grid: a function that makes learners needs a grid of values")
        groups = (from_grid(learners, grid),)
    elif grid is not None:
        raise ValueError("grid: only goes with a function that makes a learner from its names")
    else:
        for learner in learners:
            if not isinstance(learner, Learner):
                raise ValueError(f"learners: {type(learner).__name__} is not a learner")
        groups = from_learners(learners)
    if never_worse_than is not None:
        groups = (*from_learners([never_worse_than]), *groups)
    families = families_of(groups)
    if not families:
        raise ValueError("learners: no member names the law of its observations, `outputs`, which a bank needs")
    if len({(family.support, family.event_shape) for family in families}) > 1:
        raise ValueError(f"learners: members observe different things, {' and '.join(map(str, families))}")
    reference = None if never_worse_than is None else 0
    if laws is None:
        return Bank(groups, OwnPrediction(families[0]), share, never_worse_than=reference)
    return Bank(groups, laws, share, marginal=marginal_for(families[0]), never_worse_than=reference)
