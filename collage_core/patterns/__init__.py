"""The dataflow pattern language and the tables plugins fill."""

from collage_core.patterns.context import NodeContext
from collage_core.patterns.matcher import Match, Mismatch, match, match_model
from collage_core.patterns.pattern import Pattern, is_absent, is_constant, is_op, is_scalar, wildcard
from collage_core.patterns.table import FusionPattern, PatternTable

__all__ = [
    "FusionPattern",
    "Match",
    "Mismatch",
    "NodeContext",
    "Pattern",
    "PatternTable",
    "is_absent",
    "is_constant",
    "is_op",
    "is_scalar",
    "match",
    "match_model",
    "wildcard",
]
