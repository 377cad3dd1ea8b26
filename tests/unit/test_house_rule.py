"""Each house rule catches the breach that it is there for, and lets its neighbour pass."""

from pathlib import PurePosixPath

import pytest

from tools.house_rule import Source
from tools.house_rule import breaches as breaches_of


def breaches(path: str, text: str) -> list[str]:
    """Return what the rules say about one file."""
    return list(breaches_of([Source(PurePosixPath(path), text)]))


BREACHES = [
    pytest.param("worker/a.py", "def f(:\n", id="a module that does not parse"),
    pytest.param("spindown/job/utils.py", "", id="an empty file name"),
    pytest.param("tests/fleet_helpers.py", "", id="an empty word in a file name"),
    pytest.param("spindown/a.py", "class LeaseManager: ...\n", id="an empty class name"),
    pytest.param("tests/a.py", "mock.patch('x')\n", id="a patch"),
    pytest.param("tests/a.py", "from unittest.mock import patch\n", id="an imported patch"),
    pytest.param("tests/a.py", "time.sleep(1)\n", id="a sleep"),
    pytest.param("tests/a.py", "@pytest.mark.skip\ndef f(): ...\n", id="a skipped test"),
    pytest.param("tests/a.py", f"def test_{'a' * 55}(): ...\n", id="a long name of a test"),
    pytest.param("spindown/job/a.py", "os.environ['A']\n", id="the environment inside"),
    pytest.param("spindown/domain/a.py", "import pydantic\n", id="a library in the domain"),
    pytest.param("spindown/domain/a.py", "datetime.now(UTC)\n", id="a clock in the domain"),
    pytest.param("docs/a.md", "see /ho" + "me/me/x\n", id="a private path"),
    pytest.param("a.toml", "pypi" + ".org\n", id="a registry"),
    *(
        pytest.param("docs/a.md", f"see {head}{tail}\n", id=f"a secret like {head}")
        for head, tail in {
            "AKIA": "ABCDEFGH23456789",
            "ASIA": "ABCDEFGH23456789",
            "aws_secret_access_key = ": "a" * 40,
            "-----BEGIN RSA PRIV": "ATE KEY-----",
            "ghp_": "a" * 36,
            "xoxb-": "1234567890-abc",
            "AIza": "a" * 35,
            "eyJhbGciOiJIUzI1.": "eyJzdWIiOiIxMjM0.abcdefghijk",
            "https://me:": "pass@example.com/",
        }.items()
    ),
]

NEIGHBOURS = [
    pytest.param("spindown/aws/quota.py", "class ServiceQuota: ...\n", id="a word at its place"),
    pytest.param("spindown/cli/a.py", "os.environ['A']\n", id="the environment at the edge"),
    pytest.param(
        "spindown/domain/a.py", "import math\nfrom spindown.domain import offer\n", id="stdlib"
    ),
    pytest.param(
        "docs/a.md", "run `.venv/bin/spindown`; see infra/queue/work/\n", id="relative paths"
    ),
    pytest.param("tests/a.py", f"def test_{'a' * 54}(): ...\n", id="a name of 59 characters"),
    pytest.param("tests/a.py", f"def {'a' * 70}(): ...\n", id="a long name of no test"),
    pytest.param("worker/a.py", "time.sleep(1)\n", id="a sleep in the product"),
    pytest.param("docs/a.md", "AKIA" + "IOSFODNN7EXAMPLE\n", id="the example key of AWS"),
    pytest.param("docs/a.md", "https://example.com/a:b@c\n", id="an address without a password"),
]


@pytest.mark.parametrize(("path", "text"), BREACHES)
def test_a_breach_is_named_once_with_its_file(path: str, text: str) -> None:
    found = breaches(path, text)

    assert [line.partition(":")[0] for line in found] == [path]


@pytest.mark.parametrize(("path", "text"), NEIGHBOURS)
def test_what_only_resembles_a_breach_passes(path: str, text: str) -> None:
    assert breaches(path, text) == []


@pytest.mark.parametrize(("names", "count"), [("Ab Cd", 0), ("Ab Ab", 1), ("Ab Ab Ab", 2)])
def test_a_class_of_the_product_has_a_name_of_its_own(names: str, count: int) -> None:
    sources = [
        Source(PurePosixPath(f"spindown/{number}.py"), f"class {name}: ...\n")
        for number, name in enumerate(names.split())
    ]

    assert len([*breaches_of(sources)]) == count


@pytest.mark.parametrize(
    ("path", "test", "count"),
    [
        pytest.param("tests/a.py", "assert said == 'the disk is full'", 1, id="a comparison"),
        pytest.param("tests/a.py", "assert 'Disk is full: 7' in said", 1, id="a part"),
        pytest.param("tests/a.py", "pytest.raises(E, match='disk is full')", 1, id="a pattern"),
        pytest.param("tests/a.py", "assert said.endswith('disk is full')", 1, id="an end"),
        pytest.param("tests/a.py", "assert f'{a} disk is full' in said", 1, id="with a value"),
        pytest.param("tests/a.py", "assert said == 'the cat is here'", 0, id="its own words"),
        pytest.param("tests/a.py", "say('the disk is full')", 0, id="what a test says"),
        pytest.param("tests/a.py", "assert said == 'free the disk'", 0, id="of a docstring"),
        pytest.param("tests/a.py", "assert said == 'disk is'", 0, id="two words"),
        pytest.param("tests/a.py", "assert said == 'list open files'", 0, id="no sentence"),
        pytest.param("tests/unit/cli/a/b.py", "assert 'disk is full' in said", 0, id="a command's"),
        pytest.param("research/tests/a.py", "assert 'disk is full' in it", 1, id="of research"),
        pytest.param("research/tests/a.py", "assert 'a page is made' in it", 1, id="of a page"),
        pytest.param("research/a.py", "assert 'disk is full' in it", 0, id="no test"),
    ],
)
def test_no_test_pins_a_sentence_of_what_it_tests(path: str, test: str, count: int) -> None:
    product = '"""Free the disk."""\nE(f"{disk}: the disk is full", "list open files")\n'
    sources = [
        Source(PurePosixPath("spindown/a.py"), product),
        Source(PurePosixPath("research/b.py"), "say('a page is made')\n"),
        Source(PurePosixPath(path), f"{test}\n"),
    ]

    assert len(list(breaches_of(sources))) == count
