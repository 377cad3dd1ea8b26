"""What the documents point at is there: links, decisions, commands, metrics."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from spindown.cli.app import COMMANDS, load
from spindown.cli.deploy import OPTIONS_OF_CDK
from spindown.contract.metric import METRICS
from spindown.installed import cdk_command

ROOT = Path(__file__).parents[2]
NOTES = ROOT / "research" / "notes"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *NOTES.glob("*.md")])


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_every_link_leads_somewhere(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8"))

    assert [link for link in links if not (path.parent / link).exists()] == []


def anchors_in(text: str) -> set[str]:
    """Return what may follow ``#`` in a link to a page: its headings, as renderers spell them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_into_a_page_names_one_of_its_headings() -> None:
    links = {
        (path, link)
        for path in DOCUMENTS
        for link in re.findall(r"\]\((?!https?:)([^)]*#[^)]+)\)", path.read_text(encoding="utf-8"))
    }

    assert links
    for path, link in links:
        page, anchor = link.split("#")
        text = (path.parent / page if page else path).read_text(encoding="utf-8")
        assert anchor in anchors_in(text), f"{name_of(path)}: {link}"


def entries(menu: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield the words and the page of each entry of the site's menu."""
    for entry in menu:
        for words, below in entry.items():
            if isinstance(below, str):
                yield words, below
            else:
                yield from entries(below)


def test_the_menu_has_each_page_under_its_title() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    menu = {page: words for words, page in entries(site["nav"])}

    titles = {page: (ROOT / page).read_text(encoding="utf-8").partition("\n")[0] for page in menu}
    assert titles == {page: f"# {words}" for page, words in menu.items()}
    assert {name_of(path) for path in (ROOT / "docs").glob("*.md")} <= menu.keys()


def test_dollars_beside_other_tools_are_simulated() -> None:
    text = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| ")]
    told = {row[0]: (row[1], row[2].rstrip(" |")) for row in rows if len(row) == 3}
    office = json.loads((ROOT / "docs" / "benchmarks.json").read_text())["results"]["S1"]
    mixed = json.loads((ROOT / "docs" / "scale.json").read_text())
    ours = mixed["played"]["ours"]["dollars_by_day"]
    days = {name: one["dollars_by_day"] for name, one in mixed["cheap"]["1"]["rivals"].items()}

    for title, of_office, of_mixed in (
        ("| **Spindown**", "ours 10 min", "ours"),
        ("| **AWS Batch**", "batch", "batch"),
        ("| **SkyPilot**, managed jobs", "vm-per-job", ""),
        ("| **Karpenter**", "", "karpenter"),
        ("| Kubernetes with Cluster Autoscaler, large nodes", "", "cluster"),
        ("| an Auto Scaling group by backlog", "asg-backlog", ""),
        ("| one machine on demand that is never off, more by alarm", "warm", ""),
    ):
        found = ["no figure", "no figure"]
        if of_office:
            found[0] = f"${mean(seed[of_office]['dollars'] for seed in office.values()):,.0f}"
        if of_mixed:
            counted = {**days, "ours": ours}[of_mixed][7 : len(ours)]
            found[1] = f"${30 * round(mean(counted), 2):,.0f}"
        assert told[title] == tuple(found), title


#: What tells a person to run something; decisions tell of their own day.
GUIDES = [
    path
    for path in DOCUMENTS
    if path.parent.name not in {"adr", "notes"} and path.name != "CHANGELOG.md"
]


@pytest.mark.parametrize("path", GUIDES, ids=name_of)
def test_every_command_of_ours_is_there_and_takes_its_options(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = re.findall(
        r"(?:^|[`$ (])(?<!from )spindown ([a-z]+(?: [^`\n#|]*)?)", text, re.MULTILINE
    )

    assert [line for line in lines if not is_command(line)] == []


def is_command(line: str) -> bool:
    """Tell whether words after ``spindown`` are a command and options of it."""
    # What follows two dashes is a command of somebody else.
    name, *words = line.partition(" -- ")[0].split()
    if name not in COMMANDS:
        return False
    command = load(name)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    known = {name for parameter in command.params for name in parameter.opts}
    if command.context_settings.get("ignore_unknown_options"):
        known |= options_of_cdk(name)
    given = {word.strip("[]").partition("=")[0] for word in words if re.match(r"\[?--[a-z]", word)}
    # `deploy` and the like pass on what they do not know: it is an option of cdk.
    passes_on = bool(command.context_settings.get("ignore_unknown_options"))
    return passes_on or given <= known


def options_of_cdk(command: str) -> set[str]:
    """Return the options of a command of CDK, to which ours pass on what they do not know."""
    registry = json.loads((Path(cdk_command()[1]).parents[1] / OPTIONS_OF_CDK).read_bytes())
    own = registry["commands"].get(command, {}).get("options", {})
    return {f"--{name}" for name in registry["globalOptions"] | own}


@pytest.mark.parametrize("path", GUIDES, ids=name_of)
def test_every_target_of_make_is_there(path: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:`|^)make ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE))

    assert named <= targets


def test_every_decision_is_listed_under_its_title() -> None:
    folder = ROOT / "docs" / "adr"
    listed = (folder / "README.md").read_text(encoding="utf-8")

    for path in sorted(folder.glob("0*.md")):
        text = path.read_text(encoding="utf-8")
        first, _, status = text.splitlines()[:3]
        number, title = first[2:].split(". ", 1)
        assert int(path.name[:4]) == int(number)
        stated = re.match(r"Status: (accepted|partly replaced by|replaced by)", status)
        assert stated, f"{path.name}: the third line tells the status"
        assert f"| [{number}]({path.name}) | {title} | {stated[1]}" in listed
        (decided,) = re.findall(r"^\*\*Decision\.\*\*", text, re.MULTILINE)
        assert text.partition(decided)[0].count("**") == 0, f"{path.name}: the decision comes first"


@pytest.mark.parametrize(
    ("path", "lines"), [("spindown/control/tick.py", 200), ("docs/glossary.md", 104)]
)
def test_what_is_read_first_is_read_at_one_go(path: str, lines: int) -> None:
    assert len((ROOT / path).read_text(encoding="utf-8").splitlines()) <= lines


def test_every_place_to_look_is_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = text.partition("## Where to look")[2].partition("\n## ")[0]
    places = re.findall(r"`((?:functions|infra|spindown|worker)/[^`]+)`", table)

    assert len(places) > 50
    assert [place for place in places if not (ROOT / place).exists()] == []


def test_every_metric_in_the_runbook_is_sent() -> None:
    text = (ROOT / "docs" / "runbook.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[A-Z][a-z]+){2,})`", text))

    assert len(named) > 10
    assert named - METRICS.keys() == set()
