"""What the pages tell people to type: their fenced blocks, and the commands in these."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: What tells people to run something.
PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
)
_SHELLS = frozenset({"sh", "console"})
#: Between two commands of one line.
_JOINS = frozenset({"&&", "|", ";"})
#: A part of a usage line that may be left out.
_MACHINE = re.compile(r"\b[a-z]\w+\.\w*xlarge(/\S+)?|\bi-[0-9a-f]+\b")
_NUMBER = re.compile(r"\d[\w.,/:]*\b")
_OPTIONAL = re.compile(r"\[(--[^\]]+)\]")
#: Words of pages that stand for what a person has.
_STANDS_FOR = {
    "C": "--config examples/demo.toml --local",
    "FILE": "spindown.toml",
    "ITEM": "README.md",
    "JSON": "'{}'",
    "DIR": "got",
    "N": "0",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command of a page, as a shell would split it."""

    page: str
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {shlex.join(self.words)}"

    @property
    def program(self) -> str:
        return self.words[0]


def blocks(*languages: str) -> Iterator[Block]:
    """Yield the blocks of all pages in these languages; of all languages if none is named."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if not languages or found[1] in languages:
                yield Block(
                    page=str(path.relative_to(ROOT)),
                    line=text.count("\n", 0, found.start()) + 2,
                    language=found[1],
                    text=found[2],
                )


def commands() -> Iterator[Command]:
    """Yield every command of a shell's block; where a prompt is shown, what follows prompts."""
    for block in blocks(*_SHELLS):
        shows_prompt = block.text.startswith("$ ")
        for number, line in _lines(block.text):
            if shows_prompt and not line.startswith("$ "):
                continue
            typed = _OPTIONAL.sub(lambda found: found[1].partition("|")[0], line.removeprefix("$ "))
            for words in _split(typed.replace("...", "")):
                yield Command(page=block.page, line=block.line + number, words=tuple(words))


def shown(command: str) -> Iterator[str]:
    """Yield what the pages show below each command that begins so."""
    for block in blocks("console"):
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE):
            if part.startswith(command):
                yield part.partition("\n")[2]


def form(text: str) -> list[str]:
    """Return the words of a text without its numbers, its frame and the names of machines."""
    words = [_MACHINE.sub("M", word) for word in text.split() if word.strip("─│╭╮╰╯")]
    return [_NUMBER.sub("N", word) for word in words]


def filled(words: Sequence[str], known: Mapping[str, str]) -> list[str]:
    """Return words with those of ``known`` in place of what stands for them."""
    whole = {**_STANDS_FOR, **known}
    return [
        part for word in words for part in (shlex.split(whole[word]) if word in whole else [word])
    ]


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line with its number; a line that is continued takes what follows."""
    begun, held = 0, ""
    for number, line in enumerate(text.splitlines()):
        begun = number if not held else begun
        held += line
        try:
            is_whole = not held.endswith("\\") and shlex.split(held, comments=True) is not None
        except ValueError:
            # A quotation goes on.
            is_whole = not held.startswith(("$ ", "spindown", "aws", "python"))
        if is_whole:
            yield begun, held
            held = ""
        else:
            held = f"{held.removesuffix(chr(92))} "


def _split(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word in _JOINS:
            if words:
                yield words
            words = []
        else:
            words.append(word)
