"""The layout of a dashboard: sections in the order in which a person asks their questions.

What they show is in ``overview_dashboard`` and ``workload_dashboard``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aws_cdk import aws_cloudwatch as cloudwatch

from spindown.infra.shared.stack import DeploymentStack

#: Columns of a dashboard.
_COLUMNS = 24
_GRAPH_ROWS = 6
_GRAPHS_ABREAST = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """One graph of a section; the graphs of a row share its width equally."""

    title: str
    left: Sequence[cloudwatch.IMetric]
    #: What is counted on the axis, in which unit or of which time.
    left_label: str
    right: Sequence[cloudwatch.IMetric] = ()
    right_label: str = ""
    stacked: bool = False
    #: Whether the right axis begins at zero; a saving may be negative.
    right_from_zero: bool = True
    #: Values of the left axis to mark: (value, what it is).
    marks: Sequence[tuple[float, str]] = ()

    def draw(self, width: int, region: str) -> cloudwatch.IWidget:
        """Return the widget, which shows metrics of a region.

        What CloudWatch assumes anyway is left out, and the region is no reference: the template has
        little room for many workloads.
        """
        return cloudwatch.GraphWidget(
            title=self.title,
            region=region,
            left=list(self.left),
            right=list(self.right),
            left_y_axis=cloudwatch.YAxisProps(label=self.left_label, min=0, show_units=False),
            right_y_axis=cloudwatch.YAxisProps(
                label=self.right_label,
                min=0 if self.right_from_zero else None,
                show_units=False,
            )
            if self.right
            else None,
            left_annotations=[
                cloudwatch.HorizontalAnnotation(value=value, label=label)
                for value, label in self.marks
            ],
            stacked=self.stacked,
            width=width,
            height=_GRAPH_ROWS,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One part of a dashboard: the question that it answers, how to read it, and its graphs."""

    title: str
    explanation: str
    graphs: Sequence[Graph]


def lay_out(dashboard: cloudwatch.Dashboard, sections: Sequence[Section]) -> None:
    """Add a text and rows of graphs for each section."""
    region = DeploymentStack.holding(dashboard).region
    for section in sections:
        dashboard.add_widgets(
            cloudwatch.TextWidget(
                markdown=f"## {section.title}\n{section.explanation}",
                width=_COLUMNS,
                height=3,
            )
        )
        rows = math.ceil(len(section.graphs) / _GRAPHS_ABREAST)
        abreast = math.ceil(len(section.graphs) / rows)
        for start in range(0, len(section.graphs), abreast):
            row = section.graphs[start : start + abreast]
            dashboard.add_widgets(*(graph.draw(_COLUMNS // len(row), region) for graph in row))


def show_alarms(
    dashboard: cloudwatch.Dashboard, title: str, alarms: Sequence[cloudwatch.IAlarm]
) -> None:
    """Add the state of alarms, as wide as the dashboard."""
    dashboard.add_widgets(
        cloudwatch.AlarmStatusWidget(title=title, alarms=list(alarms), width=_COLUMNS, height=3)
    )
