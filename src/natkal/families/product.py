"""Several observations at once, independent given the parameters."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import block_diag

from natkal.families.base import Event, Family, Natural, Observed, Raw, as_float
from natkal.typing import Array, Bool, Float


@dataclasses.dataclass(frozen=True, eq=False, init=False, repr=False)
class Product(Family):
    """`p(y | nu) = prod_i p_i(y_i | nu_i)`: y, T(y), nu and the raw output are the concatenations of the parts'.

    y is one vector; a discrete part reads its entries of it as integers, and a part with a vector event its flattened
    entries. Each part takes `raw_dim` raw outputs. Covariance and roots are block-diagonal.

    >>> import jax.numpy as jnp
    >>> from natkal.families import Bernoulli, Gaussian
    >>> family = Product(Bernoulli(), Gaussian(1.0))
    >>> family.score(jnp.array([0.0, 2.0]), jnp.array([1.0, 5.0])).tolist()
    [0.5, 3.0]
    """

    families: tuple[Family, ...]

    def __init__(self, *families: Family):
        if not families:
            raise ValueError("families: a Product needs at least one")
        for position, family in enumerate(families):
            if not isinstance(family, Family):
                raise ValueError(f"families: entry {position} is not a family, got {family!r}")
        object.__setattr__(self, "families", families)

    def __repr__(self) -> str:
        return f"Product({', '.join(map(repr, self.families))})"

    @property
    def dim(self) -> int:
        """The sum of the parts'."""
        return sum(family.dim for family in self.families)

    @property
    def raw_dim(self) -> int:
        """The sum of the parts'."""
        return sum(family.raw_dim for family in self.families)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """One vector, the parts' events end to end."""
        return (sum(self._event_sizes()),)

    @property
    def domain(self) -> str:
        """Part by part."""
        return "; ".join(f"{family.domain} (part {position})" for position, family in enumerate(self.families))

    def sufficient_statistic(self, y: Event) -> Natural:
        """The parts' statistics, end to end."""
        parts = zip(self.families, self._events(y), strict=True)
        return jnp.concatenate([family.sufficient_statistic(event) for family, event in parts])

    def log_partition(self, natural: Natural) -> Float[Array, ""]:
        """Log Z = sum_i log Z_i."""
        parts = zip(self.families, self._naturals(natural), strict=True)
        return sum((family.log_partition(part) for family, part in parts), jnp.zeros((), natural.dtype))

    def log_base(self, y: Event) -> Float[Array, ""]:
        """Sum_i log base_i."""
        parts = zip(self.families, self._events(y), strict=True)
        return sum((family.log_base(event) for family, event in parts), jnp.zeros((), as_float(y).dtype))

    def natural(self, mean: Natural) -> Natural:
        """Part by part."""
        parts = zip(self.families, self._naturals(mean), strict=True)
        return jnp.concatenate([family.natural(part) for family, part in parts])

    def sample(self, key: Array, natural: Natural) -> Event:
        """Independent draws, end to end in the dtype of `natural`."""
        keys = jax.random.split(key, len(self.families))
        parts = zip(self.families, keys, self._naturals(natural), strict=True)
        return jnp.concatenate(
            [as_float(jnp.ravel(family.sample(key, part)), natural.dtype) for family, key, part in parts]
        )

    def mean(self, natural: Natural) -> Natural:
        """Part by part."""
        parts = zip(self.families, self._naturals(natural), strict=True)
        return jnp.concatenate([family.mean(part) for family, part in parts])

    def cov(self, natural: Natural) -> Float[Array, "k k"]:
        """Block-diagonal."""
        parts = zip(self.families, self._naturals(natural), strict=True)
        return block_diag(*[family.cov(part) for family, part in parts])

    def noise_root(self, natural: Natural) -> Float[Array, "k r"]:
        """Block-diagonal."""
        parts = zip(self.families, self._naturals(natural), strict=True)
        return block_diag(*[family.noise_root(part) for family, part in parts])

    def log_prob(self, natural: Natural, y: Event) -> Float[Array, ""]:
        """Log p = sum_i log p_i."""
        parts = zip(self.families, self._naturals(natural), self._events(y), strict=True)
        return sum((family.log_prob(part, event) for family, part, event in parts), jnp.zeros((), natural.dtype))

    def error(self, natural: Natural, y: Event) -> Natural:
        """Part by part."""
        parts = zip(self.families, self._naturals(natural), self._events(y), strict=True)
        return jnp.concatenate([family.error(part, event) for family, part, event in parts])

    def link(self, raw: Raw) -> Natural:
        """Part by part."""
        parts = zip(self.families, self._raws(raw), strict=True)
        return jnp.concatenate([family.link(part) for family, part in parts])

    def score(self, raw: Raw, y: Event) -> Raw:
        """Part by part."""
        parts = zip(self.families, self._raws(raw), self._events(y), strict=True)
        return jnp.concatenate([family.score(part, event) for family, part, event in parts])

    def root(self, raw: Raw) -> Float[Array, "raw r"]:
        """Block-diagonal."""
        parts = zip(self.families, self._raws(raw), strict=True)
        return block_diag(*[family.root(part) for family, part in parts])

    def observe(self, raw: Raw, y: Event) -> Observed:
        """Part by part: a missing part leaves the others as they are."""
        parts = zip(self.families, self._raws(raw), self._events(y), strict=True)
        observed = [family.observe(part, event) for family, part, event in parts]
        return Observed(
            score=jnp.concatenate([part.score for part in observed]),
            root=block_diag(*[part.root for part in observed]),
            log_prob=sum((part.log_prob for part in observed), jnp.zeros((), raw.dtype)),
            present=jnp.concatenate([part.present for part in observed]),
        )

    def curved(self, raw: Raw) -> Bool[Array, " raw"]:
        """Part by part."""
        parts = zip(self.families, self._raws(raw), strict=True)
        return jnp.concatenate([family.curved(part) for family, part in parts])

    def in_domain(self, targets: np.ndarray) -> np.ndarray:
        """Every part in its own domain."""
        return np.all([family.in_domain(part) for family, part in self._columns(targets)], axis=0)

    def possible(self, targets: np.ndarray) -> np.ndarray:
        """Every part possible or missing on its own."""
        return np.all([family.possible(part) for family, part in self._columns(targets)], axis=0)

    def _columns(self, targets: np.ndarray) -> list[tuple[Family, np.ndarray]]:
        columns = np.split(targets, np.cumsum(self._event_sizes())[:-1], axis=1)
        parts = zip(self.families, columns, strict=True)
        return [(family, column.reshape(len(targets), *family.event_shape)) for family, column in parts]

    def _event_sizes(self) -> list[int]:
        return [int(np.prod(family.event_shape)) for family in self.families]

    def _events(self, y: Event) -> list[Array]:
        pieces = _split(jnp.asarray(y), self._event_sizes(), "y")
        return [piece.reshape(family.event_shape) for piece, family in zip(pieces, self.families, strict=True)]

    def _naturals(self, natural: Natural) -> list[Array]:
        return _split(natural, [family.dim for family in self.families], "natural")

    def _raws(self, raw: Raw) -> list[Array]:
        return _split(raw, [family.raw_dim for family in self.families], "raw")


def _split(vector: Array, sizes: Sequence[int], name: str) -> list[Array]:
    """Consecutive pieces of these sizes."""
    if vector.shape != (sum(sizes),):
        raise ValueError(f"{name}: the parts take {list(sizes)} entries, {sum(sizes)} in all; got shape {vector.shape}")
    return jnp.split(vector, np.cumsum(sizes)[:-1].tolist())
