"""Array types with their shapes: jaxtyping's where it is installed (tests check them), plain arrays where not."""

from typing import TYPE_CHECKING, Any

from jax import Array

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Num
else:
    try:
        from jaxtyping import Bool, Float, Int, Num
    except ModuleNotFoundError:

        class _Unshaped:
            """`Float[Array, "k p"]` without jaxtyping: the array type alone."""

            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = Int = Num = _Unshaped

Params = Any
"""A pytree of floating-point arrays: what the user calls the parameters (theta)."""

__all__ = ["Array", "Bool", "Float", "Int", "Num", "Params"]
