"""Check the house rules that no other tool knows; print one line for each breach.

Reads what git tracks or would track. A rule takes one file and returns its breaches; `RULES` is
the list of them. Exits 1 if there is a breach.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("spindown", "functions", "worker", "infra")

#: Names that say nothing about what a thing does, so that everything ends up in it.
EMPTY_WORDS = frozenset(
    {
        "base",
        "common",
        "constant",
        "constants",
        "helper",
        "helpers",
        "manager",
        "misc",
        "service",
        "shared",
        "util",
        "utils",
    }
)

#: Where the environment is read: the entry points, which pass values on.
READS_ENVIRONMENT = (
    "functions/*.py",
    "infra/app.py",
    "spindown/cli/*.py",
    "spindown/local/*.py",
    "worker/__main__.py",
    "worker/child/folder.py",
)

#: What a test must not touch: a patch hides a missing port, a sleep hides a missing clock.
BANNED_IN_TESTS = {
    "mock.patch": "pass the in-memory port",
    "monkeypatch.setattr": "pass the in-memory port",
    "pytest.importorskip": "a test always runs",
    "pytest.mark.skip": "a test always runs",
    "pytest.mark.skipif": "a test always runs",
    "pytest.mark.xfail": "a test passes or is not there",
    "pytest.skip": "a test always runs",
    "pytest.xfail": "a test passes or is not there",
    "time.sleep": "move the clock by hand",
}

#: How long the name of a test may be: one line of pytest's report, read at a glance.
TEST_NAME_LENGTH = 59

#: Where the words are the product: what commands print, and errors about what a person wrote.
WORDS_ARE_TESTED = (
    "tests/e2e/",
    "tests/infra/",
    "tests/local/",
    "tests/unit/cli/",
    "tests/unit/config/",
    "tests/unit/operate/test_status.py",
    "tests/unit/test_reason_text.py",
)

#: Calls that look for their argument in a text.
SEARCHES = frozenset({"count", "endswith", "findall", "fullmatch", "match", "search", "startswith"})

#: Three words in a row with one of these are of a sentence, not a name, a command or a key.
SENTENCE_WORD = re.compile(
    r"\b(?:an?|and|are|as|at|be|been|by|can|cannot|did|do|does|for|from|had|has|have|in|is|it|its"
    r"|more|most|no|not|of|on|or|than|that|the|there|they|this|to|until|was|were|what|when|which"
    r"|while|who|with|without)\b"
)
WORDS_IN_A_ROW = 3

#: Addresses that tie the repository to one registry, and paths of one machine.
FOREIGN = re.compile(
    r"pypi\.org|pythonhosted\.org|registry\.npmjs|registry\.yarnpkg|[/]simple/|--(?:extra-)?index-url\b"
    r"|(?<![\w.)}*])/(?:home/(?!ec2-user|ubuntu)\w|root/|work/|Users/\w|tmp/sd)"
)

#: What a credential looks like: AWS, private keys, GitHub, Slack, Google, a signed token. The forms
#: are those that their issuers publish; AWS's own example keys end in EXAMPLE.
SECRET = re.compile(
    r"\b(?:AKIA|ASIA)(?![A-Z0-9]*EXAMPLE)[A-Z0-9]{16}\b"
    r"|(?i:aws_?secret_?access_?key)\W{1,4}(?![A-Za-z0-9/+]*EXAMPLE)[A-Za-z0-9/+]{40}\b"
    r"|-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"
    r"|\bgh[pousr]_[A-Za-z0-9]{36}\b|\bgithub_pat_\w{60,}"
    r"|\bxox[abprs]-[A-Za-z0-9-]{10,}"
    r"|\bAIza[\w-]{35}\b"
    r"|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"
    r"|\bhttps?://[^\s/:@]+:[^\s/@{}$]+@"
)

#: The clocks that the standard library keeps beside its pure values.
CLOCK_READS = ("datetime.now", "datetime.today", "datetime.utcnow", "date.today")


@dataclass(frozen=True)
class Source:
    """One file of the repository: its path from the root and its text."""

    path: PurePosixPath
    text: str

    @property
    def is_module(self) -> bool:
        """Tell whether this is Python."""
        return self.path.suffix == ".py"

    @property
    def is_product(self) -> bool:
        """Tell whether this is a module that is shipped."""
        return self.is_module and self.path.parts[0] in PRODUCT

    @property
    def is_test(self) -> bool:
        """Tell whether this is a module of the tests."""
        return self.is_module and "tests" in self.path.parts[:2]

    @property
    def is_tested(self) -> bool:
        """Tell whether this is a module of what tests are about: the product or the research."""
        return self.is_product or (
            self.is_module and self.path.parts[0] == "research" and not self.is_test
        )

    @property
    def is_domain(self) -> bool:
        """Tell whether this is a module of the pure core."""
        return self.is_module and self.path.parts[:2] == ("spindown", "domain")

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """Every node of the module's syntax tree; none if it does not parse."""
        try:
            return tuple(ast.walk(ast.parse(self.text)))
        except SyntaxError:
            return ()


Rule = Callable[[Source], Iterator[str]]


def module_parses(source: Source) -> Iterator[str]:
    """The other rules can see what is in a module."""
    if source.is_module and not source.nodes:
        yield "is not valid Python"


def name_says_something(source: Source) -> Iterator[str]:
    """Neither a file nor a class has a name under which anything could be put."""
    words = set(re.split(r"[_\-]", source.path.stem.lower()))
    yield from (f"the name says nothing: {word}" for word in sorted(words & EMPTY_WORDS))
    if source.is_module and not source.is_test:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                last = re.findall(r"[A-Z][a-z]*", node.name)[-1:]
                if last and last[0].lower() in EMPTY_WORDS:
                    yield f"the name says nothing: {node.name}"


def test_is_honest(source: Source) -> Iterator[str]:
    """A test runs, waits for nothing and replaces nothing behind the code's back."""
    if not source.is_test:
        return
    for node in source.nodes:
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            for banned, instead in BANNED_IN_TESTS.items():
                if dotted == banned or dotted.endswith(f".{banned}"):
                    yield f"line {node.lineno}: {banned}: {instead}"
        elif isinstance(node, ast.ImportFrom) and node.module == "unittest.mock":
            yield f"line {node.lineno}: unittest.mock: pass the in-memory port"


def test_name_is_short(source: Source) -> Iterator[str]:
    """A test's name says one behaviour in fewer than 60 characters."""
    if not source.is_test:
        return
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            excess = len(node.name) - TEST_NAME_LENGTH
            if excess > 0:
                yield f"line {node.lineno}: the name is {excess} characters too long: {node.name}"


def environment_is_read_at_the_edge(source: Source) -> Iterator[str]:
    """Only entry points read the environment, so that everything else can be called with values."""
    if not source.is_product or any(source.path.match(edge) for edge in READS_ENVIRONMENT):
        return
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv"}:
            yield f"line {node.lineno}: reads the environment; take the value as an argument"


def domain_is_pure(source: Source) -> Iterator[str]:
    """The domain imports the standard library and itself, and is told the time."""
    if not source.is_domain:
        return
    known = sys.stdlib_module_names | {"spindown"}
    for node in source.nodes:
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        elif isinstance(node, ast.Attribute) and ast.unparse(node).endswith(CLOCK_READS):
            yield f"line {node.lineno}: reads a clock; take the time as an argument"
        foreign = [name for name in names if name.partition(".")[0] not in known]
        yield from (f"imports {name}; the domain is stdlib only" for name in foreign)


def text_belongs_to_no_place(source: Source) -> Iterator[str]:
    """No file names a package registry or a directory of somebody's machine."""
    for number, line in enumerate(source.text.splitlines(), 1):
        found = FOREIGN.search(line)
        if found:
            yield f"line {number}: belongs to one place: {found[0]}"


def holds_no_secret(source: Source) -> Iterator[str]:
    """No file holds what looks like a credential; the line is named, what stands there is not."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if SECRET.search(line):
            yield f"line {number}: looks like a credential: take it out, and revoke it"


RULES: Sequence[Rule] = (
    module_parses,
    name_says_something,
    test_is_honest,
    test_name_is_short,
    environment_is_read_at_the_edge,
    domain_is_pure,
    text_belongs_to_no_place,
    holds_no_secret,
)


def breaches(sources: Sequence[Source]) -> Iterator[str]:
    """Yield every breach of every rule, as `path: what is wrong`."""
    for source in sources:
        for rule in RULES:
            yield from (f"{source.path}: {found}" for found in rule(source))
    yield from class_names_are_unique(sources)
    yield from tests_pin_no_sentence(sources)


def class_names_are_unique(sources: Sequence[Source]) -> Iterator[str]:
    """No two classes of the product share a name, so that a name says which one is meant."""
    first: dict[str, PurePosixPath] = {}
    for source in sources:
        classes = [node for node in source.nodes if isinstance(node, ast.ClassDef)]
        for node in classes if source.is_product else ():
            other = first.setdefault(node.name, source.path)
            if other != source.path:
                yield f"{source.path}: line {node.lineno}: {node.name} is also a class of {other}"


def tests_pin_no_sentence(sources: Sequence[Source]) -> Iterator[str]:
    """A test asserts codes and numbers, so that a text of what it tests can be reworded alone.

    A breach is a text that a test compares with or looks for, and that repeats three words in a
    row of a text of the product or the research.
    """
    ours: set[str] = set()
    for source in sources:
        if source.is_tested:
            documents = {id(node.value) for node in source.nodes if isinstance(node, ast.Expr)}
            for node in source.nodes:
                if id(node) not in documents:
                    ours.update(_phrases(_text(node)))
    for source in sources:
        if source.is_test and not str(source.path).startswith(WORDS_ARE_TESTED):
            for node in source.nodes:
                for inner in (each for part in _asserted(node) for each in ast.walk(part)):
                    for phrase in sorted(ours.intersection(_phrases(_text(inner))))[:1]:
                        where = f"{source.path}: line {getattr(inner, 'lineno', 0)}"
                        yield f"{where}: pins a sentence of what it tests: {phrase}"


def _asserted(node: ast.AST) -> Sequence[ast.expr]:
    """Return what a comparison compares and what a call looks for in a text."""
    if isinstance(node, ast.Compare):
        return (node.left, *node.comparators)
    if isinstance(node, ast.Call):
        matches = [word.value for word in node.keywords if word.arg == "match"]
        is_search = isinstance(node.func, ast.Attribute) and node.func.attr in SEARCHES
        return (*matches, *(node.args if is_search else ()))
    return ()


def _text(node: ast.AST) -> str:
    """Return the text of a literal; "": it is none."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _phrases(text: str) -> Iterator[str]:
    """Yield the words in a row that make a text a sentence."""
    words = [word.strip(".,:;()'\"?!^$").lower() for word in text.split()]
    for first in range(len(words) - WORDS_IN_A_ROW + 1):
        phrase = " ".join(words[first : first + WORDS_IN_A_ROW])
        if re.fullmatch(r"[a-z' -]+", phrase) and SENTENCE_WORD.search(phrase):
            yield phrase


def read_sources(root: Path) -> list[Source]:
    """Return the text files under `root` that git tracks or would track."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(listing, check=True, cwd=root, capture_output=True, text=True)
    found = []
    for name in sorted(filter(None, done.stdout.split("\0"))):
        try:
            text = (root / name).read_text(encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError, UnicodeDecodeError):
            continue
        found.append(Source(PurePosixPath(name), text))
    return found


def main() -> int:
    """Print every breach; return the exit status."""
    found = list(breaches(read_sources(ROOT)))
    print("\n".join(found) or "House rules kept.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
