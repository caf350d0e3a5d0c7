"""How figures look: one style per arm, ink and grid that the page can recolour, SVG and PNG that do not change.

Arms differ in colour, dash and marker, so that a figure can be read in black and white. The control is always the
solid, thick, ink-coloured line with the filled circle. Colours are those of Okabe and Ito ("Color universal design",
2008), darkened where they are too light for a line on white.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from PIL import Image

from isoflop.reporting.text import TIMES

INK, MUTED, GRID, SHADE, PAPER = "#1f2328", "#59636f", "#dfe3e8", "#e9ecf0", "#ffffff"
COLOURS = ("#0072b2", "#d55e00", "#00845f", "#b0539a", "#a87b00", "#3d9bd1", "#7a6a4f")
DASHES: tuple[Any, ...] = ((5, 2), (2, 1.5), (6, 2, 1.5, 2), (9, 2.5), (1, 1.4), (4, 1.2, 1, 1.2, 1, 1.2), (3, 3))
MARKERS = ("s", "^", "D", "v", "P", "X", "*")
AREA = {"P": 1.5, "X": 1.45, "*": 2.3, "D": 0.85}  # so that thin markers look as large as the others
WIDTH = 8.0  # inches; 10 points are then as large as the text of the page
DPI = 130
LABEL_LENGTH = 34

# In the page each colour is a variable, so that the dark scheme can have its own.
VARIABLES = {INK: "ink", MUTED: "muted", GRID: "grid", SHADE: "shade", PAPER: "paper"} | {
    colour: f"arm-{i}" for i, colour in enumerate(COLOURS, start=1)
}


@dataclass(frozen=True, kw_only=True)
class ArmStyle:
    """How one arm is drawn everywhere."""

    label: str  # as the figure writes it
    colour: str
    dashes: Any  # "" is a solid line
    marker: str
    width: float

    def size(self, points: float) -> float:
        """Marker size for lines, in points, that looks like a circle of that size."""
        return points * float(AREA.get(self.marker, 1.0) ** 0.5)


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A finished figure: `svg` to stand inside a page, `png` for a file. `alt` says what it shows."""

    name: str
    alt: str
    caption: str
    svg: str
    png: bytes


def arm_styles(labels: Sequence[str]) -> dict[str, ArmStyle]:
    """A style for each arm; the first is the control. Past seven arms colours and dashes pair up anew."""
    styles = {}
    for i, label in enumerate(labels):
        colour, dash = (i - 1) % len(COLOURS), (i - 1 + (i - 1) // len(COLOURS)) % len(DASHES)
        styles[label] = ArmStyle(
            label=shorten(label),
            colour=COLOURS[colour] if i else INK,
            dashes=DASHES[dash] if i else "",
            marker=MARKERS[dash] if i else "o",
            width=1.7 if i else 2.6,
        )
    return styles


def shorten(label: str, length: int = LABEL_LENGTH) -> str:
    """A label that leaves room for the data."""
    return label if len(label) <= length else f"{label[: length - 1].rstrip(' ,·')}…"


@contextmanager
def theme() -> Iterator[None]:
    """Seaborn's white grid in the page's colours. Nothing outside changes."""
    own: dict[Any, Any] = {
        "axes.edgecolor": MUTED,
        "axes.labelcolor": INK,
        "axes.titlecolor": INK,
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.labelsize": 10,
        "axes.unicode_minus": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.8,
        "figure.facecolor": PAPER,
        "font.family": "DejaVu Sans",  # matplotlib brings it, so that every machine draws the same
        "font.size": 10,
        "grid.color": GRID,
        "grid.linewidth": 0.8,
        "legend.frameon": False,
        "legend.fontsize": 9.5,
        "mathtext.fontset": "dejavusans",
        "svg.fonttype": "path",
        "svg.hashsalt": "isoflop",
        "text.color": INK,
        "xtick.color": MUTED,
        "ytick.color": MUTED,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "xtick.labelsize": 9.5,
        "ytick.labelsize": 9.5,
    }
    with mpl.rc_context(), sns.axes_style("whitegrid", rc=own), mpl.rc_context(own):
        yield


def finish(figure: Figure, name: str, *, alt: str, caption: str) -> Drawing:
    """Draw as SVG and PNG. The same figure gives the same bytes: no date, no program version."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, for both
    svg, png = io.StringIO(), io.BytesIO()
    figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
    return Drawing(name=name, alt=alt, caption=caption, svg=inline_svg(svg.getvalue(), name, alt), png=smaller(png))


def smaller(png: io.BytesIO) -> bytes:
    """The picture with a palette of 256 colours: a third of the size, and no difference to see in a chart."""
    picture, out = Image.open(png).convert("RGB"), io.BytesIO()
    picture.quantize(256, dither=Image.Dither.NONE).save(out, format="png", optimize=True)
    return out.getvalue()


def inline_svg(text: str, name: str, alt: str) -> str:
    """The SVG as part of a page: no prolog, no metadata, ids of its own, colours as the page's variables."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", text)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    head, rest = text.split(">", 1)
    size = re.search(r'viewBox="([^"]+)"', head)
    assert size is not None
    quoted = alt.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    opening = f'<svg viewBox="{size[1]}" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" aria-label="{quoted}"'
    return f"{opening}>{rest}".strip()


def log_flops_axis(axes: Axes, label: str = "training compute (FLOPs, log scale)", *, narrow: bool = False) -> None:
    """A logarithmic x axis whose labels have room: fewer per decade the more decades there are."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    decades = math.log10(high / low) * (2 if narrow else 1)
    subs = (1.0,) if decades > 3 else (1.0, 2.0, 5.0) if decades > 1.2 else (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
    axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=30))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(label)


def power(value: float) -> str:
    """5e11 as 5×10¹¹."""
    if value <= 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    mantissa = mantissa.removesuffix(".0")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if mantissa == "1" else f"{mantissa}{TIMES}10{raised}"
