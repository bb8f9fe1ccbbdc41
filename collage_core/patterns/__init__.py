"""The dataflow pattern language and the pattern tables of plugins."""

from collage_core.patterns.constructors import (
    any_op,
    chain,
    dominates,
    is_absent,
    is_constant,
    is_input,
    is_op,
    is_scalar,
    variadic,
    wildcard,
)
from collage_core.patterns.context import NodeContext
from collage_core.patterns.matcher import Matcher, match, match_model
from collage_core.patterns.matches import Match, Mismatch
from collage_core.patterns.pattern import Pattern
from collage_core.patterns.table import FusionPattern, PatternTable

__all__ = [
    "FusionPattern",
    "Match",
    "Matcher",
    "Mismatch",
    "NodeContext",
    "Pattern",
    "PatternTable",
    "any_op",
    "chain",
    "dominates",
    "is_absent",
    "is_constant",
    "is_input",
    "is_op",
    "is_scalar",
    "match",
    "match_model",
    "variadic",
    "wildcard",
]
