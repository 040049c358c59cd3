"""The seam below the dense filter: how P is kept, multiplied and corrected."""

from typing import Any, NamedTuple, Protocol, runtime_checkable

from natkal.typing import Array, Float


class Learned(NamedTuple):
    """P after an observation; and P as before it, kept in the same memory, should the observation be turned down."""

    store: Any
    declined: Any


class Advanced(NamedTuple):
    """A store with room for an observation's rows, rows P, and rows P rows'."""

    store: Any
    images: Float[Array, "m p"]
    gram: Float[Array, "m m"]


@runtime_checkable
class Kernel(Protocol):
    """A covariance matrix in memory."""

    @property
    def name(self) -> str:
        """What a person calls it."""
        ...

    def start(self, cov: Float[Array, " p"] | Float[Array, "p p"], limit: Float[Array, ""]) -> Any:
        """A store that holds `cov`, given as variances or in full; no variance is to stay above `limit`."""
        ...

    def held(self, store: Any, limit: Float[Array, ""]) -> Float[Array, " p"] | None:
        """The diagonal of H for P <- H P H (`limits.py`); None where a kernel does this on its own time."""
        ...

    def settle(self, store: Any, room: int) -> Any:
        """The same P, in the same memory, with room for corrections of `room` rows."""
        ...

    def multiply(self, store: Any, rows: Float[Array, "m p"]) -> Float[Array, "m p"]:
        """Rows P, reading the store once."""
        ...

    def advance(self, store: Any, rows: Float[Array, "m p"]) -> Advanced:
        """`settle` with room for as many rows, then `multiply`; in one pass where the kernel can."""
        ...

    def learn(
        self, store: Any, down: Float[Array, "r p"], keep: Float[Array, ""], held: Float[Array, " p"] | None = None
    ) -> Learned:
        """P <- H P H / keep - down' down, where `down` fits in the room there is; H as `held` gave it."""
        ...

    def to_dense(self, store: Any) -> Float[Array, "p p"]:
        """P in full."""
        ...
