"""Numbers, names and lists as a reader wants them. Plain strings; a minus sign is a real one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

MINUS, TIMES = "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
NA = "n/a"


def bpb(value: float | None) -> str:
    """Bits per byte: 4 decimals."""
    return NA if value is None else f"{value:.4f}"


def signed(value: float | None, digits: int = 4) -> str:
    """A difference: always with its sign; what rounds to zero has none."""
    if value is None:
        return NA
    text = f"{value:+.{digits}f}"
    return text[1:] if not text.strip("+-0.") else text.replace("-", MINUS)


def interval(ends: Sequence[float] | None) -> str:
    """An interval of differences."""
    return NA if ends is None else f"{signed(ends[0])} to {signed(ends[1])}"


def count(value: float | None) -> str:
    """A whole number with thousands separated."""
    return NA if value is None else f"{value:,.0f}"


def flops(value: float | None) -> str:
    """FLOPs or FLOP/s: 4.00e12."""
    return NA if value is None else f"{value:.2e}".replace("e+0", "e").replace("e+", "e")


def times(value: float | None, digits: int = 2) -> str:
    """A factor."""
    return NA if value is None else f"{value:.{digits}f}{TIMES}"


def percent(share: float | None, digits: int = 0) -> str:
    """A share of one."""
    return NA if share is None else f"{100 * share:.{digits}f} %"


def duration(seconds: float | None) -> str:
    """Seconds as a reader says them: 0.4 s, 41 s, 6 min 20 s, 3.2 h."""
    if seconds is None:
        return NA
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{seconds / 3600:.1f} h"


def moment(iso: str) -> str:
    """A time in UTC to the minute, from ISO 8601."""
    return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


def p_value(value: float | None) -> str:
    """Two digits, never a bare zero."""
    if value is None:
        return NA
    return "< 0.0001" if value < 0.0001 else f"{value:.4f}" if value < 0.01 else f"{value:.2f}"


def setting(value: object) -> str:
    """A value as params.yaml has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def plural(n: int, one: str, many: str | None = None) -> str:
    """`1 arm`, `3 arms`, `2 stories`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def listed(items: Sequence[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {last} {items[-1]}" if items else ""


def seeds_text(seeds: Sequence[int]) -> str:
    """`seed 1`, `seeds 1 and 2`."""
    return f"seed{'' if len(seeds) == 1 else 's'} {listed([str(seed) for seed in seeds])}"


def span(low: int, high: int) -> str:
    """`3`, or `2 to 3`."""
    return str(low) if low == high else f"{low} to {high}"
