"""Many independent learners of one kind, advanced together: one vectorised call for all the rows that arrive."""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from natkal.banks.population import Population, learned
from natkal.engine.protocol import Learner, Prediction
from natkal.models import ravel
from natkal.stream.checks import check_learner, check_stream
from natkal.typing import Array, Params

FEW = 32
"""Where fewer learners than this have rows left, their rows are taken one after the other."""


class FleetState(NamedTuple):
    """Every learner's state with a leading axis, and the state that new ones start from.

    `first` is the state that they started from before `pool` was called, `settled` how many observations each learner
    had made when it was last called (none beyond its end).
    """

    members: Any
    start: Any
    first: Any
    settled: Any


@dataclasses.dataclass(frozen=True, eq=False)
class Fleet:
    """Learners numbered from 0 that share model and settings and nothing else; build it with `fleet`.

    In a fleet a dense covariance is kept as suits many small ones (`inner`); a state that is handed out or taken in
    is as the learner alone keeps it.
    """

    learner: Learner
    size: int

    def init(self, params: Params | None = None, key: Array | None = None) -> FleetState:
        """All learners at the same start (the model's own parameters unless given)."""
        start = self.inner.init(params, key)
        settled = jnp.zeros(self.size, jnp.uint32)
        return FleetState(members=spread(start, self.size), start=start, first=start, settled=settled)

    def update(self, state: FleetState, keys: Any, inputs: Any, targets: Any) -> tuple[FleetState, Any]:
        """Row i is learned by learner `keys[i]`; the rows of one learner in their order. `state` is used up.

        `keys` are integers, as many as rows; `keys=None` means one row for each learner in turn. A key beyond the last
        learner makes room: the fleet doubles, so that growing to n costs log2(n) compilations. Returns what each row
        told, in the order of the rows.
        """
        check_learner(self.learner, state)
        check_stream(self.learner, inputs, targets)
        slots = np.arange(len(targets)) if keys is None else _checked(keys, len(targets))
        return self.update_unchecked(state, slots, inputs, targets)

    def update_unchecked(
        self, state: FleetState, slots: np.ndarray, inputs: Any, targets: Any
    ) -> tuple[FleetState, Any]:
        """`update` on values already checked."""
        members = self._grown(state, int(slots.max(initial=0)) + 1)
        size = _length(members)
        if len(slots) == size and np.array_equal(slots, np.arange(size)):
            members, infos = self._everyone(members, inputs, targets)
            return state._replace(members=members), infos
        inputs, targets = jax.tree.map(np.asarray, inputs), np.asarray(targets)
        order, pieces = [], []
        for rows, together in rounds(slots):
            picked = jax.tree.map(lambda leaf, rows=rows: leaf[rows], (inputs, targets))
            members, infos = self.advance(members, slots[rows], *picked, together=together)
            order.append(rows)
            pieces.append(jax.tree.map(lambda leaf, rows=rows: leaf[: len(rows)], infos))
        back = np.argsort(np.concatenate(order))
        stacked = jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[back], *pieces)
        return state._replace(members=members), stacked

    def advance(
        self,
        members: Any,
        slots: np.ndarray,
        inputs: Any,
        targets: np.ndarray,
        *,
        together: bool,
        quiet: bool = False,
        least: int = 1,
    ) -> tuple[Any, Any]:
        """Some rows of arrays on the host, values already checked: each learner once, or in turn. Uses `members` up.

        What the rows told comes with padding behind, up to a power of two of rows and at least
        `least` of them: few different widths are few compilations. `quiet`: the log probabilities only.
        """
        wide, size = power_of_two(max(len(slots), least)), _length(members)
        places = np.concatenate([slots, np.full(wide - len(slots), size)]).astype(np.int32)
        padded = jax.tree.map(lambda leaf: _padded(leaf, wide), (inputs, targets))
        return self._advances[together, quiet](members, places, *padded)

    def learn(self, state: FleetState, inputs: Any, targets: Any) -> FleetState:
        """One row for each learner, values already checked, telling nothing: the fastest way. `state` is used up."""
        return state._replace(members=self._quietly(state.members, inputs, targets))

    def predict(self, state: FleetState, keys: Any, inputs: Any) -> Prediction:
        """What learner `keys[i]` expects for row i of `inputs`; a key never seen, what every learner starts with."""
        check_learner(self.learner, state)
        slots = _checked(keys, None)
        size = _length(state.members)
        return self._predictions(state, np.minimum(slots, size).astype(np.int32), inputs)

    def member(self, state: FleetState, key: int) -> Any:
        """One learner's state, as `nk.online`'s functions take it."""
        check_learner(self.learner, state)
        return self._one(state.members, key)

    def export_shard(self, state: FleetState, keys: Any) -> Any:
        """The states of these learners with a leading axis, to keep elsewhere or to import into another fleet."""
        check_learner(self.learner, state)
        slots = _checked(keys, None)
        if slots.max(initial=-1) >= _length(state.members):
            raise ValueError(f"keys: {int(slots.max())} is not in this fleet of {_length(state.members)}")
        return jax.vmap(self._alone)(_take(state.members, slots))

    def import_shard(self, state: FleetState, keys: Any, shard: Any) -> FleetState:
        """The fleet in which learners `keys` are those of an exported shard, in its order. `state` is used up."""
        check_learner(self.learner, state)
        slots = _checked(keys, _length(shard))
        members = self._grown(state, int(slots.max(initial=0)) + 1)
        placed = self._placed(members, slots.astype(np.int32), jax.vmap(self._joined)(shard))
        return state._replace(members=placed)

    def pool(self, state: FleetState) -> FleetState:
        """The fleet as one population: new learners start from what all have learned, and the others lean on it.

        Their prior becomes N(mu, T), mean and spread of the learners' parameters (`banks/population.py`). A pure
        function of the learners' posteriors, on the host; call it now and then, such as whenever the rows have doubled.
        Filters with a dense covariance and a constant fading only.
        """
        check_learner(self.learner, state)
        learner: Any = self.inner
        if not hasattr(learner, "believing"):
            raise ValueError(f"pool: {type(self.learner).__name__} has no mean and covariance to pool; use nk.online")
        means, covs = self._beliefs(state.members)
        (now_mean, first_mean), (now_cov, first_cov) = self._beliefs(
            jax.tree.map(lambda *leaves: jnp.stack(leaves), state.start, state.first)
        )
        steps = np.asarray(state.members.steps.low)
        settled = np.zeros_like(steps)
        settled[: len(state.settled)] = np.asarray(state.settled)
        seen = np.flatnonzero(steps)
        share = learner.rates.left((steps - settled)[seen].astype(float))
        population, moved, moved_covs = learned(
            Population(now_mean, now_cov), Population(first_mean, first_cov), means[seen], covs[seen], share
        )
        means[:], covs[:] = population.mean, population.cov
        means[seen], covs[seen] = moved, moved_covs
        start = self._believing(
            jax.tree.map(lambda leaf: leaf[None], state.start), population.mean[None], population.cov[None]
        )
        return FleetState(
            members=self._believing(state.members, means, covs),
            start=jax.tree.map(lambda leaf: leaf[0], start),
            first=state.first,
            settled=jnp.asarray(steps),
        )

    def _beliefs(self, states: Any) -> tuple[np.ndarray, np.ndarray]:
        """Flat parameters and covariances of stacked states, in float64 on the host."""
        both = jax.jit(jax.vmap(lambda own: (ravel(own.params), self.inner.covariance(own))))(states)
        return np.array(both[0], np.float64), np.array(both[1], np.float64)

    def _believing(self, states: Any, means: np.ndarray, covs: np.ndarray) -> Any:
        learner: Any = self.inner
        dtype = ravel(jax.tree.map(lambda leaf: leaf[0], states.params)).dtype
        return jax.jit(jax.vmap(learner.believing))(states, means.astype(dtype), covs.astype(dtype))

    def _grown(self, state: FleetState, needed: int) -> Any:
        """Twice the learners, as often as needed."""
        size = have = _length(state.members)
        while size < needed:
            size *= 2
        if size == have:
            return state.members
        more = spread(state.start, size - have)
        return jax.tree.map(lambda old, new: jnp.concatenate([old, new]), state.members, more)

    def _step(self, member: Any, inputs: Any, target: Any) -> tuple[Any, Any]:
        return self.inner.step(member, inputs, target)

    @functools.cached_property
    def inner(self) -> Learner:
        """The learner as it is best kept when there are many of it: a dense filter takes the kernel for small ones."""
        in_fleet = getattr(self.learner, "in_fleet", None)
        return self.learner if in_fleet is None else in_fleet()

    def _alone(self, member: Any) -> Any:
        return member if self.inner is self.learner else self.inner.recast(member, self.learner)  # pyright: ignore[reportAttributeAccessIssue]

    def _joined(self, member: Any) -> Any:
        return member if self.inner is self.learner else self.learner.recast(member, self.inner)  # pyright: ignore[reportAttributeAccessIssue]

    @functools.cached_property
    def _one(self):
        return jax.jit(lambda members, key: self._alone(jax.tree.map(lambda leaf: leaf[key], members)))

    @functools.cached_property
    def _everyone(self):
        return jax.jit(jax.vmap(self._step), donate_argnums=0)

    @functools.cached_property
    def _quietly(self):
        return jax.jit(jax.vmap(lambda *row: self._step(*row)[0]), donate_argnums=0)

    @functools.cached_property
    def _advances(self) -> dict[tuple[bool, bool], Any]:
        """Programs by (together, quiet)."""

        def all_of_it(info: Any) -> Any:
            return info

        def log_prob(info: Any) -> Any:
            return info.log_prob

        return {
            (together, quiet): (self._together if together else self._in_turn)(log_prob if quiet else all_of_it)
            for together in (True, False)
            for quiet in (True, False)
        }

    def _together(self, told: Callable[[Any], Any]) -> Any:
        def advance(members: Any, slots: Array, inputs: Any, targets: Array) -> Any:
            new, infos = jax.vmap(self._step)(_take(members, slots), inputs, targets)
            return _put(members, slots, new), told(infos)

        return jax.jit(advance, donate_argnums=0)

    def _in_turn(self, told: Callable[[Any], Any]) -> Any:
        def one(members: Any, row: Any) -> Any:
            slot, inputs, target = row
            new, info = self._step(_take(members, slot), inputs, target)
            return _put(members, slot, new), told(info)

        def advance(members: Any, slots: Array, inputs: Any, targets: Array) -> Any:
            return jax.lax.scan(one, members, (slots, inputs, targets))

        return jax.jit(advance, donate_argnums=0)

    @functools.cached_property
    def _placed(self):
        return jax.jit(_put, donate_argnums=0)

    def place(self, members: Any, slots: np.ndarray, states: Any) -> Any:
        """These stacked states, in the fleet's own form, into their slots. Uses `members` up."""
        return self._placed(members, slots.astype(np.int32), states)

    @functools.cached_property
    def taken(self):
        """(members, slots) -> the states in these slots, in the fleet's own form."""
        return jax.jit(_take)

    @functools.cached_property
    def _predictions(self):
        def predict(state: FleetState, slots: Array, inputs: Any) -> Prediction:
            unseen = slots == _length(state.members)

            def one(member: Any, unseen: Array, inputs: Any) -> Prediction:
                known = jax.tree.map(lambda old, new: jnp.where(unseen, new, old), member, state.start)
                return self.inner.predict(known, inputs)

            return jax.vmap(one)(_take(state.members, slots), unseen, inputs)

        return jax.jit(predict)


def fleet(learner: Learner, size: int) -> Fleet:
    """`size` independent learners like this one, advanced together; more are made when their rows arrive.

    >>> import jax.numpy as jnp
    >>> import natkal as nk
    >>> model = nk.static_model(lambda w, u: w * u, jnp.zeros(()), nk.families.Gaussian(1.0))
    >>> fleet = nk.fleet(nk.online(model, prior_cov=1.0), 2)
    >>> state, info = fleet.update(fleet.init(jnp.zeros(())), [0, 1, 0, 0], jnp.ones(4), jnp.ones(4))
    >>> [round(float(x), 6) for x in state.members.params]  # three ones and a unit prior at 0; one and the same prior
    [0.75, 0.5]
    """
    if size < 1:
        raise ValueError(f"size: a fleet needs at least one learner, got {size}")
    return Fleet(learner=learner, size=size)


@functools.partial(jax.jit, static_argnums=1)
def spread(state: Any, count: int) -> Any:
    """`count` copies of a state with a leading axis."""
    return jax.tree.map(lambda leaf: jnp.repeat(leaf[None], count, axis=0), state)


def _take(members: Any, slots: Any) -> Any:
    """The states in these slots; padding beyond the last one takes the last one's."""
    return jax.tree.map(lambda leaf: leaf.at[slots].get(mode="clip"), members)


def _put(members: Any, slots: Any, new: Any) -> Any:
    """These states into their slots; padding goes nowhere."""
    return jax.tree.map(lambda leaf, value: leaf.at[slots].set(value, mode="drop"), members, new)


def _length(members: Any) -> int:
    return jax.tree.leaves(members)[0].shape[0]


def _checked(keys: Any, count: int | None) -> np.ndarray:
    slots = np.asarray(keys)
    if slots.ndim != 1 or not np.issubdtype(slots.dtype, np.integer) or (count is not None and len(slots) != count):
        raise ValueError(f"keys: must be {'' if count is None else count} integers, got {slots.dtype} {slots.shape}")
    if slots.min(initial=0) < 0:
        raise ValueError(f"keys: learners are numbered from 0, got {int(slots.min())}")
    return slots


def rounds(slots: np.ndarray) -> Iterator[tuple[np.ndarray, bool]]:
    """Rows that may learn together: the first of each learner, then the second of each, and so on; the rest in turn."""
    if len(slots) and np.all(np.diff(slots) > 0):
        yield np.arange(len(slots)), True
        return
    order = np.argsort(slots, kind="stable")
    grouped = slots[order]
    first = np.flatnonzero(np.concatenate([[True], grouped[1:] != grouped[:-1]]))
    turn = np.empty(len(slots), np.int64)
    turn[order] = np.arange(len(slots)) - np.repeat(first, np.diff(np.append(first, len(slots))))
    by_turn = np.argsort(turn, kind="stable")
    done = 0
    for count in np.bincount(turn):
        if count < FEW:
            break
        yield by_turn[done : done + count], True
        done += count
    if done < len(slots):
        yield by_turn[done:], False


def _padded(rows: np.ndarray, length: int) -> np.ndarray:
    """Rows up to this length, the first one again."""
    return np.concatenate([rows, np.broadcast_to(rows[:1], (length - len(rows), *rows.shape[1:]))])


def power_of_two(count: int) -> int:
    """The least power of two that is not below."""
    return 1 << max(count - 1, 0).bit_length()
