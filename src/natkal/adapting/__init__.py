"""A trained model is a prior, and stays alive."""

from natkal.adapting.models import adapt

__all__ = ["adapt"]
