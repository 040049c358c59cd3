"""What is known about the parameters."""

from natkal.curvature.base import Curvature, Prior, Response, Solved, Update, chosen
from natkal.curvature.blocks import Blocks, blocks
from natkal.curvature.dense import Dense, dense
from natkal.curvature.diagonal import Diagonal, diagonal
from natkal.curvature.information import Information, information
from natkal.curvature.innovation import attenuated, correction, solved
from natkal.curvature.kronecker import Kronecker, kronecker
from natkal.curvature.low_rank import LowRank, low_rank
from natkal.curvature.mixed import Frozen, Mixed, MixedState, frozen, last_layer, mixed
from natkal.curvature.quasi_diagonal import QuasiDiagonal, quasi_diagonal
from natkal.curvature.square_root import SquareRoot, square_root

__all__ = [
    "Blocks",
    "Curvature",
    "Dense",
    "Diagonal",
    "Frozen",
    "Information",
    "Kronecker",
    "LowRank",
    "Mixed",
    "MixedState",
    "Prior",
    "QuasiDiagonal",
    "Response",
    "Solved",
    "SquareRoot",
    "Update",
    "attenuated",
    "blocks",
    "chosen",
    "correction",
    "dense",
    "diagonal",
    "frozen",
    "information",
    "kronecker",
    "last_layer",
    "low_rank",
    "mixed",
    "quasi_diagonal",
    "solved",
    "square_root",
]
