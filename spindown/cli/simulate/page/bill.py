"""What each way costs, and what that money goes to."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spindown.cli.render.canvas import CAUSE_COLOURS, INK, OURS, drawing, to_svg
from spindown.cli.simulate.alternative import AlternativeResult, Role

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: A share is written into its part of a bar from here on.
_WRITTEN_FROM = 0.07
_ON_DARK = {"work", "redo"}
_BAR = 0.62


def plot_bill(outcomes: Sequence[AlternativeResult]) -> str:
    """Return the plot as SVG: dollars on the left, shares on the right, the cheapest on top."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator  # noqa: PLC0415 - heavy, and only for the page

    shown = sorted(
        (one for one in outcomes if one.alternative.role is not Role.FRONTIER),
        key=lambda one: one.result.dollars,
    )
    height = 1.3 + 0.42 * len(shown)
    with drawing(9.2, height, columns=2, sharey=True, width_ratios=(1.15, 1)) as (figure, both):
        dollars, shares = both
        _stack(dollars, [one.result.bill for one in shown])
        _stack(shares, [_shares(one) for one in shown])
        _write_totals(dollars, shown)
        _write_shares(shares, shown)
        for axes in both:
            axes.grid(visible=False, axis="y")
            axes.spines["left"].set_visible(False)
            axes.tick_params(left=False)
        dollars.set_yticks(range(len(shown)), [one.alternative.name for one in shown])
        dollars.invert_yaxis()
        for label, one in zip(dollars.get_yticklabels(), shown, strict=True):
            is_ours = one.alternative.role is Role.OURS
            label.set_color(OURS if is_ours else INK)
            label.set_fontweight("bold" if is_ours else "normal")
        dollars.xaxis.set_major_locator(MaxNLocator(nbins=4))
        dollars.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
        dollars.set_xlabel("USD")
        shares.set_xlabel("share of the bill, %")
        figure.legend(
            *dollars.get_legend_handles_labels(), loc="outside upper right", ncols=4, fontsize=10
        )
        return to_svg(
            figure, name="bill", label="The bill of each way by cause: work, boot, redo and idle"
        )


def _shares(outcome: AlternativeResult) -> dict[str, float]:
    whole = max(outcome.result.dollars, 1e-9)
    return {cause: 100.0 * part / whole for cause, part in outcome.result.bill.items()}


def _stack(axes: "Axes", bills: Sequence[object]) -> None:
    lefts = [0.0] * len(bills)
    for cause, colour in CAUSE_COLOURS.items():
        parts = [bill[cause] for bill in bills]  # type: ignore[index]
        axes.barh(range(len(bills)), parts, _BAR, left=lefts, color=colour, label=cause)
        lefts = [left + part for left, part in zip(lefts, parts, strict=True)]


def _write_totals(axes: "Axes", shown: Sequence[AlternativeResult]) -> None:
    most = max(one.result.dollars for one in shown)
    ours = next(
        (x.result.dollars for x in shown if x.alternative.role is Role.OURS and x.is_whole), None
    )
    for row, one in enumerate(shown):
        text = f"${one.result.dollars:,.2f}"
        if ours and one.is_whole and one.alternative.role is not Role.OURS:
            text += f"  ({one.result.dollars / ours:.2f} x)"
        axes.annotate(
            text,
            (one.result.dollars, row),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=10,
        )
    axes.set_xlim(0, most * 1.55 or 1.0)


def _write_shares(axes: "Axes", shown: Sequence[AlternativeResult]) -> None:
    axes.set_xlim(0, 100)
    for row, one in enumerate(shown):
        left = 0.0
        for cause in CAUSE_COLOURS:
            part = _shares(one)[cause]
            if part >= _WRITTEN_FROM * 100:
                axes.annotate(
                    f"{part:.0f}",
                    (left + part / 2, row),
                    ha="center",
                    va="center",
                    fontsize=9.5,
                    color="white" if cause in _ON_DARK else INK,
                )
            left += part
