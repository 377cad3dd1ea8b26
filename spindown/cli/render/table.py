"""Tables that cut no word and no number, however narrow the terminal is."""

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

#: Between two columns.
_GAP = 2
_INDENT = 4
#: Columns that no table needs.
_UNLIMITED = 10_000


def make_table(*texts: str, numbers: Iterable[str] = ()) -> Table:
    """Return an empty table: columns of texts, then columns of numbers."""
    table = _FittedTable(box=None, pad_edge=False)
    for name in texts:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


class _FittedTable(Table):
    """A table whose texts are wrapped between words; without room for that each row is a block."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table; or of each row its first cell, and below it the others with names."""
        needs = [_width_of(column, console, options) for column in self.columns]
        left = options.max_width - _GAP * (len(needs) - 1) - sum(need.minimum for need in needs)
        if left < 0:
            yield from self._blocks(console)
            return
        # The last ones first: a sentence is at the end.
        for column, need in reversed(list(zip(self.columns, needs, strict=True))):
            column.width = min(need.maximum, need.minimum + left)
            left -= column.width - need.minimum
        yield from super().__rich_console__(console, options)

    def _blocks(self, console: Console) -> RenderResult:
        names = [_text(column.header) for column in self.columns]
        cells = zip(*(column.cells for column in self.columns), strict=True)
        for row, (first, *others) in zip(self.rows, cells, strict=True):
            parts = [
                Text.assemble(name, " ", _text(cell)) if name else _text(cell)
                for name, cell in zip(names[1:], others, strict=True)
                if _text(cell)
            ]
            style = console.get_style(row.style or "")
            yield Text.assemble(_text(first), style=style)
            for line in _in_lines(parts, console.width - _INDENT):
                yield Padding(line, (0, 0, 0, _INDENT), style=style)


def _in_lines(parts: Iterable[Text], width: int) -> Sequence[Text]:
    """Return parts in lines; none is broken that fits into one."""
    lines: list[Text] = []
    for part in parts:
        if lines and cell_len(f"{lines[-1].plain}; {part.plain};") <= width:
            lines[-1] = Text("; ").join([lines[-1], part])
        else:
            lines.append(part)
    return [Text.assemble(line, ";") for line in lines[:-1]] + lines[-1:]


def _width_of(column: Column, console: Console, options: ConsoleOptions) -> Measurement:
    """Return the width of a column's widest word, and of its widest line."""
    unlimited = options.update(width=_UNLIMITED)
    found = [Measurement.get(console, unlimited, cell) for cell in (column.header, *column.cells)]
    widest = max(each.maximum for each in found)
    # What stands at the right is a number, or made of numbers, and is not wrapped.
    is_number = column.justify == "right"
    return Measurement(widest if is_number else max(each.minimum for each in found), widest)


def _text(cell: object) -> Text:
    return cell if isinstance(cell, Text) else Text(str(cell))
