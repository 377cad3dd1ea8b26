"""Where the names of points are written."""

from itertools import combinations

from spindown.cli.render.canvas import drawing
from spindown.cli.simulate.page.frontier import Label, write_labels


def test_two_labels_of_a_crowded_point_do_not_overlap() -> None:
    with drawing(6.0, 4.0) as (figure, (axes,)):
        axes.set_xlim(0, 10)
        axes.set_ylim(0, 10)
        figure.canvas.draw()
        here = (8.0, 5.0)
        crowd = [(x / 5, y / 2) for x in range(51) for y in range(21)]
        labels = [
            Label(text="spindown", point=here, colour="b", is_bold=True),
            Label(text="start 40 min, drain 80 min", point=here, colour="b"),
        ]
        write_labels(axes, labels, crowd)
        boxes = [text.get_window_extent() for text in axes.texts]

    assert [text.get_text() for text in axes.texts] == [label.text for label in labels]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
