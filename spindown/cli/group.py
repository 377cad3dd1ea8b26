"""A group of commands that, called alone, prints its help."""

from typing import Any

import typer


class Group(typer.core.TyperGroup):
    """Prints plain text: rich takes twice as long to load as all else that help needs."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the overview; typer would cut a sentence off where the line ends."""
        known = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        said = [(name, _first_part(one.help)) for name, one in known.items() if one is not None]
        with formatter.section("Commands"):
            formatter.write_dl(said)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the help and exit with 1 where no command is given."""
        if not args and not ctx.resilient_parsing:  # the shell asks for completions
            print(ctx.get_help())
            raise typer.Exit(1)
        return super().parse_args(ctx, args)


def _first_part(text: str | None) -> str:
    return " ".join((text or "").partition("\n\n")[0].split())


def make_group(sentence: str) -> typer.Typer:
    """Return a group of commands without any yet; the sentence says what they are about."""
    return typer.Typer(cls=Group, help=sentence, add_completion=False, rich_markup_mode=None)
