"""Affine layers found in the program that a model traces to, whatever library wrote it: their rows stay factored.

Where a program computes `x @ W + b` from a vector x and leaves W and b that occur nowhere else, every row of the
Jacobian is `x delta'` on W and `delta` on b, with delta the covector at the layer's output. So a zero is added to that
output, rows are pulled back to it, and x is kept: no outer product is formed. Every other leaf is differentiated.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from natkal.rows import FactoredRows, Outer
from natkal.typing import Array, Float, Params


class Operation(NamedTuple):
    """One primitive, the values it reads (by number, or as they are) and those it writes."""

    equation: Any
    reads: list[Any]
    writes: list[int]


class Layer(NamedTuple):
    """`x @ W + b`: the leaf W and which of its axes counts units, the leaf b or None, the values of x and of x @ W."""

    weight: int
    axis: int
    bias: int | None
    inputs: int
    output: int


def linearize_factored(
    apply: Callable[[Params, Any], Float[Array, " k"]], params: Params, inputs: Any
) -> tuple[Float[Array, " k"], Callable[[Float[Array, "m k"]], FactoredRows]]:
    """`apply(params, inputs)`, and the map from rows of covectors on it to rows of covectors on the parameters."""
    program = _Program(jax.make_jaxpr(apply)(params, inputs))
    values = jax.tree.leaves((params, inputs))
    count = len(jax.tree.leaves(params))
    layers = program.layers(count)
    known = {layer.weight for layer in layers} | {layer.bias for layer in layers}
    others = [index for index in range(count) if index not in known]

    def run(leaves: list[Any], taps: list[Array]) -> tuple[Any, list[Any]]:
        given = list(values)
        for index, leaf in zip(others, leaves, strict=True):
            given[index] = leaf
        return program.run(given, layers, taps)

    taps = [jnp.zeros(program.shape(layer.output), program.dtype(layer.output)) for layer in layers]
    raw, vjp, seen = jax.vjp(run, [jnp.asarray(values[index]) for index in others], taps, has_aux=True)

    def pull(rows: Float[Array, "m k"]) -> FactoredRows:
        of_others, deltas = jax.vmap(vjp)(rows)
        leaves: list[Any] = [None] * count
        for index, own in zip(others, of_others, strict=True):
            leaves[index] = own
        for layer, x, delta in zip(layers, seen, deltas, strict=True):
            leaves[layer.weight] = Outer(inputs=x, deltas=delta, axis=layer.axis)
            if layer.bias is not None:
                leaves[layer.bias] = delta
        biases = tuple((layer.weight, layer.bias) for layer in layers if layer.bias is not None)
        return FactoredRows(leaves=tuple(leaves), biases=biases)

    return raw, pull


class _Program:
    """A traced function as one list of primitives, nested calls written out; values are numbered."""

    def __init__(self, closed: ClosedJaxpr) -> None:
        self.operations: list[Operation] = []
        self.constants: dict[int, Any] = {}
        self.avals: list[Any] = []
        self.inputs = [self._number(var) for var in closed.jaxpr.invars]
        (self.output,) = self._write_out(closed, self.inputs)

    def shape(self, value: int) -> tuple[int, ...]:
        """The shape of a value."""
        return self.avals[value].shape

    def dtype(self, value: int) -> Any:
        """Its kind of number."""
        return self.avals[value].dtype

    def _number(self, var: Any) -> int:
        self.avals.append(var.aval)
        return len(self.avals) - 1

    def _write_out(self, closed: ClosedJaxpr, arguments: list[Any]) -> list[Any]:
        jaxpr: Jaxpr = closed.jaxpr
        env: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))
        for var, value in zip(jaxpr.constvars, closed.consts, strict=True):
            env[var] = self._number(var)
            self.constants[env[var]] = value

        def read(atom: Any) -> Any:
            return atom if isinstance(atom, Literal) else env[atom]

        for equation in jaxpr.eqns:
            reads = [read(atom) for atom in equation.invars]
            if equation.primitive.name in ("jit", "pjit"):
                writes = self._write_out(equation.params["jaxpr"], reads)
            elif self._changes_nothing(equation, reads):
                writes = reads
            else:
                writes = [self._number(var) for var in equation.outvars]
                self.operations.append(Operation(equation, reads, writes))
            env.update(zip(equation.outvars, writes, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _changes_nothing(self, equation: Any, reads: list[Any]) -> bool:
        """A conversion to the kind of number it already is (from a weak type to a strong one)."""
        if equation.primitive.name != "convert_element_type" or isinstance(reads[0], Literal):
            return False
        return equation.params["new_dtype"] == self.dtype(reads[0])

    def layers(self, count: int) -> list[Layer]:
        """The affine layers made of the first `count` inputs."""
        leaves = {value: index for index, value in enumerate(self.inputs[:count])}
        reads = [value for op in self.operations for value in op.reads if not isinstance(value, Literal)]
        uses = Counter(reads if isinstance(self.output, Literal) else [*reads, self.output])
        layers = []
        for op in self.operations:
            found = self._product(op, leaves, uses)
            if found is not None:
                layers.append(found._replace(bias=self._bias(found, leaves, uses)))
        return layers

    def _product(self, op: Operation, leaves: dict[int, int], uses: Counter) -> Layer | None:
        """`x @ W` or `W @ x` for a leaf W that occurs once."""
        if op.equation.primitive.name != "dot_general":
            return None
        contracting, (batch, _) = op.equation.params["dimension_numbers"]
        for side, weight in enumerate(op.reads):
            x = op.reads[1 - side]
            if isinstance(weight, Literal) or isinstance(x, Literal) or weight not in leaves or uses[weight] != 1:
                continue
            if len(self.shape(weight)) != 2 or len(self.shape(x)) != 1 or len(contracting[side]) != 1 or batch:
                continue
            if not self.dtype(weight) == self.dtype(x) == self.dtype(op.writes[0]):
                continue
            axis = 1 - contracting[side][0]
            return Layer(weight=leaves[weight], axis=axis, bias=None, inputs=x, output=op.writes[0])
        return None

    def _bias(self, layer: Layer, leaves: dict[int, int], uses: Counter) -> int | None:
        """The leaf that is added to the product, if that is all that happens to both."""
        if uses[layer.output] != 1:
            return None
        for op in self.operations:
            if op.equation.primitive.name == "add" and layer.output in op.reads:
                (other,) = [value for value in op.reads if value != layer.output] or [None]
                if isinstance(other, int) and other in leaves and uses[other] == 1:
                    return leaves[other] if self.shape(other) == self.shape(layer.output) else None
        return None

    def run(self, inputs: list[Any], layers: list[Layer], taps: list[Array]) -> tuple[Any, list[Any]]:
        """The output, and each layer's x, with `taps` added to the layers' products."""
        values = self.constants | dict(zip(self.inputs, inputs, strict=True))
        added = {layer.output: tap for layer, tap in zip(layers, taps, strict=True)}

        def read(value: Any) -> Any:
            return value.val if isinstance(value, Literal) else values[value]

        for op in self.operations:
            primitive = op.equation.primitive
            with op.equation.ctx.manager:
                result = primitive.bind(*map(read, op.reads), **primitive.get_bind_params(op.equation.params))
            results = result if primitive.multiple_results else [result]
            for value, own in zip(op.writes, results, strict=True):
                values[value] = own + added[value] if value in added else own
        return read(self.output), [values[layer.inputs] for layer in layers]
