"""Draws measurements as .svg or .png: curves and bars. Needs matplotlib, the extra `plot`; nothing else does.

The same numbers give the same file: no dates, no random ids, text kept as text.
"""

from __future__ import annotations  # matplotlib's types exist only where it is installed

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from headway.core.errors import HeadwayError, InvalidRequest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's: told apart by the colour-blind too. Grey stands for what others are compared with.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
GREY = "#8a8a8a"
MARKERS = "os^Dvps"
SIZE_INCHES = (8.0, 4.8)
LABEL_GAP = 11.0  # points between the labels of two curves' ends
LABEL_WIDTH = 80.0
NOTE_WIDTH = 120  # characters in a line
FORMATS = (".svg", ".png")
STYLE: dict[Any, object] = {  # Any: matplotlib's newest types list the names
    "svg.hashsalt": "headway",
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#666666",
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
}


@dataclass(frozen=True, slots=True)
class Series:
    """One curve. Equal colours belong together: the percentiles of one policy, say, of which one is dashed."""

    name: str  # in the legend
    x: Sequence[float]
    y: Sequence[float]
    colour: int = 0  # index into COLOURS
    dashed: bool = False
    label: str | None = None  # beside its last point; None: the name, "": nothing


def check_path(path: Path) -> None:
    """Call it before measuring: raises what would come of the file's name or a missing library in the end."""
    if path.suffix.lower() not in FORMATS:
        raise InvalidRequest(f"a plot is an .svg or a .png file, not {path}")
    if not path.parent.is_dir():
        raise InvalidRequest(f"plot {path}: there is no such folder")
    if find_spec("matplotlib") is None:
        raise HeadwayError("plots need matplotlib: pip install 'headway[plot]' (or: pip install matplotlib)")


def curve(
    series: Sequence[Series],
    xlabel: str,
    ylabel: str,
    path: Path,
    *,
    title: str = "",
    note: str = "",
    log_x: bool = False,
    log_y: bool = False,
) -> None:
    """Lines through the points in the order given. `note`: small print below (how it was measured)."""
    with _axes(path, title, note) as axes:
        axes.set(xlabel=xlabel, ylabel=ylabel)
        for one in series:
            axes.plot(
                one.x,
                one.y,
                color=COLOURS[one.colour % len(COLOURS)],
                linestyle="--" if one.dashed else "-",
                marker=MARKERS[one.colour % len(MARKERS)],
                markersize=4.5,
                markerfacecolor="white" if one.dashed else None,
                linewidth=1.4 if one.dashed else 2.0,
                label=one.name,
            )
        axes.set_xscale("log" if log_x else "linear")
        axes.set_yscale("log" if log_y else "linear")
        for name, log in (("x", log_x), ("y", log_y)):
            if log:
                _plain_numbers(axes, name)
        if not log_y:
            axes.set_ylim(bottom=0)
        if not log_x:
            axes.set_xlim(left=0)
        _label_ends(axes, series)
        axes.legend()


def bars(
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    ylabel: str,
    path: Path,
    *,
    title: str = "",
    note: str = "",
    number: str = "{:,.0f}",
    grey: str | None = None,
) -> None:
    """A bar for each name in `series` in each of `groups`, with its value above it. NaN leaves a gap.

    `grey`: the series that the others are compared with.
    """
    with _axes(path, title, note) as axes:
        width = 0.8 / len(series)
        coloured = [name for name in series if name != grey]
        for i, (name, values) in enumerate(series.items()):
            colour = GREY if name == grey else COLOURS[coloured.index(name) % len(COLOURS)]
            places = [g + (i - (len(series) - 1) / 2) * width for g in range(len(groups))]
            drawn = axes.bar(places, values, width * 0.94, color=colour, label=name)
            texts = ["" if value != value else number.format(value) for value in values]
            axes.bar_label(drawn, texts, padding=2, fontsize=8, color="#333333")
        axes.set_xticks(range(len(groups)), groups)
        axes.set_xlim(-0.5, len(groups) - 0.5)
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.tick_params(axis="x", length=0)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel(ylabel)
        axes.margins(y=0.12)
        axes.legend(ncols=min(4, len(series)), loc="upper center", bbox_to_anchor=(0.5, -0.08))


@contextmanager
def _axes(path: Path, title: str, note: str) -> Iterator[Axes]:
    """Empty axes; saved as `path` on leaving. No pyplot: that would look for a display and keep the figure."""
    check_path(path)
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=SIZE_INCHES, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.set_title(title, pad=12)
        if note:
            figure.supxlabel(fill(note, NOTE_WIDTH), fontsize=8, color="#666666", x=0.01, ha="left")
        yield axes
        svg = path.suffix.lower() == ".svg"
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if svg else {"Software": None})
        except OSError as error:
            raise InvalidRequest(f"plot {path}: {error.strerror}") from None


def _plain_numbers(axes: Axes, name: str) -> None:
    """0.2, 1 and 50 on a logarithmic axis instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _label_ends(axes: Axes, series: Sequence[Series]) -> None:
    """Names each curve right of its last point, moved up or down where two would overlap."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # only then is it known what lies where
    ends = []
    for one in series:
        text = one.name if one.label is None else one.label
        if text and len(one.x):
            x, y = axes.transData.transform((one.x[-1], one.y[-1])) * 72 / figure.dpi
            ends.append((x, y, one, text))
    ends.sort(key=lambda end: end[0])
    columns: list[list[tuple[float, float, Series, str]]] = []  # of ends so close in x that their labels could meet
    for end in ends:
        if columns and end[0] - columns[-1][-1][0] < LABEL_WIDTH:
            columns[-1].append(end)
        else:
            columns.append([end])
    for column in columns:
        column.sort(key=lambda end: end[1])
        for (_, _, one, text), shift in zip(column, spread([end[1] for end in column], LABEL_GAP), strict=True):
            axes.annotate(
                text,
                (one.x[-1], one.y[-1]),
                xytext=(8, shift),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color=COLOURS[one.colour % len(COLOURS)],
                annotation_clip=False,
            )


def spread(places: Sequence[float], gap: float) -> list[float]:
    """How far to move each of the sorted `places`, so that neighbours are `gap` apart and no group drifts away."""
    groups: list[tuple[float, int]] = []  # centre, members
    for place in places:
        centre, count = place, 1
        while groups and centre - (count - 1) / 2 * gap < groups[-1][0] + (groups[-1][1] + 1) / 2 * gap:
            other, members = groups.pop()
            centre = (centre * count + other * members) / (count + members)
            count += members
        groups.append((centre, count))
    moved = [centre + (i - (count - 1) / 2) * gap for centre, count in groups for i in range(count)]
    return [new - old for new, old in zip(moved, places, strict=True)]
