"""The natural gradient for optax: `from natkal.optax import natural_gradient, observe`."""

from natkal.integrations.gradient import NaturalGradientState, Seen, natural_gradient, observe

__all__ = ["NaturalGradientState", "Seen", "natural_gradient", "observe"]
