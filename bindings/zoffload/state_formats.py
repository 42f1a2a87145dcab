"""How optimizer state is stored: the names of the formats, and the rules that choose one for each
parameter. docs/state-formats.md says what each costs and what of it is exact.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from . import _core
from .errors import InvalidArgument, Unsupported

FORMATS = tuple(_core.state_format_names())
# torch's dtypes, by their names: this module needs no torch. They are the moments'; the master
# weights stay in fp32.
DTYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.int8": "int8"}


def parse_state_dtype(name: str, value: Any) -> str:
    """The format's name, from that or from a torch.dtype. `name` is the argument's, for errors."""
    if isinstance(value, str):
        if value in FORMATS:
            return value
        near = difflib.get_close_matches(value.lower(), FORMATS, n=1)
        hint = f": did you mean {near[0]!r}?" if near else ""
        raise InvalidArgument(f"{name}: there is no state format {value!r} among {FORMATS}{hint}")
    if str(value) in DTYPES:
        return DTYPES[str(value)]
    allowed = f"it may be {', '.join(DTYPES)} or one of {FORMATS}"
    if str(value).startswith("torch."):
        raise Unsupported(f"{name} is {value}: {allowed}")
    raise InvalidArgument(f"{name} is {value!r}; {allowed}")


@dataclass(frozen=True)
class FormatRule:
    """The format of the parameters in whose name the pattern is found."""

    pattern: re.Pattern
    format: str


def compile_rule(name: str, pattern: Any, format: str) -> FormatRule:
    """`name` is the rule's, for errors."""
    if not isinstance(pattern, str):
        raise InvalidArgument(f"{name}: {pattern!r} is not a regular expression")
    try:
        return FormatRule(re.compile(pattern), format)
    except re.error as error:
        raise InvalidArgument(f"{name}: {pattern!r} is no regular expression: {error}") from None


@dataclass
class FormatRules:
    """The first rule that matches wins, then the parameter group's own format, then the default."""

    default: str
    rules: tuple[FormatRule, ...] = ()
    used: set[FormatRule] = field(default_factory=set)  # that match some name

    def format_of(self, name: str, group_format: str | None = None) -> str:
        matching = [rule for rule in self.rules if rule.pattern.search(name)]
        self.used.update(matching)
        return matching[0].format if matching else group_format or self.default

    def warn_of_unused(self, stacklevel: int) -> None:
        """A rule that matches no parameter is hardly meant so."""
        for rule in self.rules:
            if rule not in self.used:
                warnings.warn(
                    f"rules: no parameter's name matches {rule.pattern.pattern!r}",
                    stacklevel=stacklevel + 1,
                )


def rules_of_config(config: _core.Config) -> FormatRules:
    """Those of level 2."""
    rules = [
        compile_rule(f"zoffload.rules[{number}].params", pattern, format)
        for number, (pattern, format) in enumerate(config.rules)
    ]
    return FormatRules(config.state_format, tuple(rules))


def asks_for_split(formats: Iterable[str]) -> bool:
    """Whether some master weights are to be stored as half of them."""
    return any(format.startswith("split") for format in formats)
