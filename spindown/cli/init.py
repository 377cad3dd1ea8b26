"""``spindown init``: a first spindown.toml, by hand or from what the account offers."""

import json
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from spindown.cli import option
from spindown.cli.render.line import print_aside
from spindown.config import DraftConfig, parse
from spindown.config.function import add_functions
from spindown.contract.codec import encode
from spindown.error import BadInput, ConfigError

if TYPE_CHECKING:
    from spindown.operate.doctor.survey import Survey

_HEAD = """\
# What to run, on which instances, and how long it may wait. Every key that is not here has a
# default: `spindown docs settings` lists them. Durations carry a unit ("90s", "10m"); money is USD.
"""
_DEPLOYMENT = """
[deployment]
name = {quoted:<32} # part of every resource's name
region = "{region}"
zones = {zones:<30} # where to look for capacity; more zones, cheaper items
budget_per_month = 50.0                 # then machines end after the job in hand (when_spent)
# alarm_email = "you@example.com"       # who gets the alarms
# alarm_webhook = "/spindown/slack"       # the secret that holds a webhook's address (Slack)

# An existing network; without this table a small VPC of public subnets is made.
# [deployment.network]
# vpc_id = "vpc-0123456789abcdef0"
# subnets = {{ {region}a = "subnet-0aaa", {region}b = "subnet-0bbb" }}
"""
_MAIN = """
[workload.main]
# inputs = ["s3://my-bucket/documents/"]  # what its jobs may read, besides what `submit` uploads

[workload.main.run]
entrypoint = "main:run"                 # module:callable below `code`
code = "code"                           # a directory beside this file
# requirements = "requirements.txt"     # below `code`, installed on the instance
batch_size = 16                         # items a call, at most
slots = "per-gpu"                       # or "per-instance", or a number

[workload.main.requirements]
# gpu_names = ["T4", "L4", "A10G"]      # default: any of NVIDIA's
gpu_count_min = 1                       # 0: no GPU is needed; then leave the next key out
gpu_memory_gib_min = 16                 # of one GPU
architectures = ["x86_64"]

# Each of these can be changed while the system runs: `spindown policy set main ...`.
[workload.main.policy]
start_within = "15m"                    # 95 % of jobs start within it; they gather until then;
                                        # `scale_up_threshold = 1` starts a machine for each as
                                        # it comes, at a higher bill
max_workers = 4                         # with too few, jobs start later: `spindown simulate`
max_price_per_hour = 2.0                # instance, root volume and public IPv4 together
idle_timeout = "auto"                   # learned from your gaps; or a duration such as "10m"

# Jobs of very different sizes: each names its type, and gets a machine of that size
# (`spindown docs types`).
# [[workload.main.policy.types]]
# name = "small"
# memory_gib = 4
# [[workload.main.policy.types]]
# name = "large"
# vcpus = 16
# memory_gib = 64
# [workload.main.policy.requirements_at_most]
# memory_gib = 128                      # the most that a message may ask for
"""
_VERIFY = """
# Of Spindown's own code: `spindown verify` proves a deployment by it, for some cents.
# [workload.verify]
# run = {{ verify = true }}
# requirements = {{ gpu_count_min = 1 }}    # 0 if `main` needs no GPU
# policy = {{ max_workers = 2, idle_timeout = "1m" }}
"""
_DRAFT = _HEAD + _DEPLOYMENT + _MAIN + _VERIFY

CODE = '''\
"""What a job is made of: batches of items in, one result an item out."""

from collections.abc import Iterator, Sequence

from spindown.user import Context, Item, Result


def setup(ctx: Context) -> None:
    """Load the model here: once in each process, before its first batch."""


def run(batch: Sequence[Item], ctx: Context) -> Iterator[Result]:
    """Replace this by what you do with an item; ``item.path`` is its file, if it is one."""
    for item in batch:
        text = item.path.read_text(errors="replace") if item.path else str(item.value)
        yield Result(item, {"words": len(text.split())})
'''

#: What the commands write beside the project's own files.
IGNORED = """\
/.spindown/
/cdk.out/
__pycache__/
"""

_TABLE = re.compile(r"^[ \t]*\[deployment\][^\n]*\n", re.MULTILINE)
_NEXT_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


def fill_in(text: str, *, region: str, zones: Sequence[str]) -> str:
    """Return the text with new region and zones in ``[deployment]``, and otherwise unchanged.

    A key that is missing, or only a comment, becomes the first of the table.
    """
    listed = ", ".join(f'"{zone}"' for zone in zones)
    table = _TABLE.search(text)
    if table is None:
        return f'[deployment]\nregion = "{region}"\nzones = [{listed}]\n\n{text}'
    end = _NEXT_TABLE.search(text, _skip_lists(text, table.end()))
    head, body = text[: table.end()], text[table.end() : end.start() if end else len(text)]
    rest = text[table.end() + len(body) :]
    body = _put(body, "zones", f"[{listed}]", r"\[[^\]]*\]")
    body = _put(body, "region", f'"{region}"', r'"[^"\n]*"')
    return head + body + rest


def _skip_lists(text: str, start: int) -> int:
    """Return where the search for the next table may begin: a list may span lines."""
    found = re.compile(r"^[ \t]*zones[ \t]*=[ \t]*\[[^\]]*\]", re.MULTILINE).search(text, start)
    table = _NEXT_TABLE.search(text, start)
    return found.end() if found and (table is None or found.start() < table.start()) else start


def _put(body: str, key: str, value: str, form: str) -> str:
    there = re.compile(rf"^([ \t]*){key}([ \t]*=[ \t]*){form}", re.MULTILINE)
    if there.search(body):
        return there.sub(lambda found: f"{found[1]}{key}{found[2]}{value}", body, count=1)
    hint = re.compile(rf"^#[ \t]*{key}[ \t]*=[ \t]*\[[^\]]*\][ \t]*(#[^\n]*)?$", re.MULTILINE)
    if hint.search(body):
        return hint.sub(lambda found: f"{key} = {value}" + _note(found[1]), body, count=1)
    return f"{key} = {value}\n{body}"


def _note(comment: str | None) -> str:
    return f"  {comment}" if comment else ""


_FUNCTIONS = re.compile(r"^functions[ \t]*=[ \t]*\[[^\]]*\]", re.MULTILINE)


def put_functions(text: str, files: Sequence[str]) -> str:
    """Return the text with these files in ``functions``, and otherwise unchanged."""
    document = tomllib.loads(text)
    listed = document.get("functions", [])
    if not isinstance(listed, list):
        raise BadInput("functions", listed, "write a list of files")
    whole = [*listed, *(one for one in files if one not in listed)]
    line = f"functions = {json.dumps(whole, ensure_ascii=False)}"
    if _FUNCTIONS.search(text):
        edited = _FUNCTIONS.sub(lambda _: line, text, count=1)
    else:
        table = _NEXT_TABLE.search(text)
        place = table.start() if table else len(text)
        edited = f"{text[:place]}{line}\n\n{text[place:]}"
    return _checked(edited, {**document, "functions": whole}, f"write {line} above its tables")


def _checked(text: str, wanted: Mapping[str, Any], remedy: str) -> str:
    """Return an edited file that says what it should (BadInput: it is written in another way)."""
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        said = {}
    if said != wanted:
        raise BadInput("spindown.toml", None, f"{remedy}, by hand: it is written in an unusual way")
    return text


#: Of a new project.
FIRST_WORKLOAD = "main"
_DEFAULT_REGION = "us-east-1"
_NAME_CHARACTERS = 31


def init(
    *,
    config: Annotated[
        Path, typer.Option("--config", help="File to write or to fill in.")
    ] = option.CONFIG_FILE,
    functions: Annotated[
        list[Path] | None,
        typer.Option(
            "--function", help="Python file whose @spindown.function are workloads; repeatable."
        ),
    ] = None,
    from_account: Annotated[
        bool, typer.Option("--from-account", help="Fill in region and zones from what AWS offers.")
    ] = False,
    region: Annotated[
        str | None, typer.Option(help="Region to use in place of the configured one.")
    ] = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Write a project: a commented spindown.toml, example code, cdk.json; or fill one in."""
    is_there = config.exists()
    if is_there and not from_account and not functions:
        remedy = (
            "it exists: give --from-account to fill in its region and zones, or choose another name"
        )
        raise BadInput("--config", str(config), remedy)
    files = [_place(config, one) for one in functions or ()]
    text = _read(config) if is_there else _draft(config, region, has_main=not files)
    if files:
        text = put_functions(text, files)
        parse(_document(text, config), DraftConfig)
    found = None
    if from_account:
        from spindown.cli.account import ask_account, region_of  # noqa: PLC0415 - slow

        asked = region if region or not is_there else region_of(text)
        found = ask_account(_document(text, config), asked, local=local)
        document = tomllib.loads(text)
        place = {"region": found.region, "zones": list(found.zones)}
        own = document.get("deployment")
        # What is no table is refused below, in the sentence for that.
        wanted = {**document, "deployment": {**(own if isinstance(own, dict) else {}), **place}}
        edited = fill_in(text, region=found.region, zones=list(found.zones))
        text = _checked(edited, wanted, f"write {json.dumps(place)} into [deployment]")
    try:
        config.write_text(text, encoding="utf-8")
    except OSError as exc:
        remedy = f"name a file that can be written ({exc.strerror})"
        raise BadInput("--config", str(config), remedy) from exc
    made = [] if is_there else [*_write_rest(config, has_main=not files)]
    _tell(config, made, found, is_new=not is_there, local=local, as_json=as_json)


def _place(config: Path, file: Path) -> str:
    """Return how spindown.toml names a file."""
    return Path(os.path.relpath(file.resolve(), config.resolve().parent)).as_posix()


def _document(text: str, config: Path) -> Mapping[str, Any]:
    """Return what a file says, with the workloads of its functions (raises ConfigError)."""
    return add_functions(tomllib.loads(text), config.resolve().parent)


def _draft(config: Path, region: str | None, *, has_main: bool) -> str:
    """Return the text of a new file; the deployment is named after its directory.

    Without a region it takes the one that AWS is configured with here. Without the workload
    ``main`` the caller must add others.

    Raises:
        BadInput: no deployment can be in this region.
    """
    directory = config.resolve().parent.name.lower()
    name = re.sub(r"[^a-z0-9]+", "-", directory).lstrip("-0123456789")
    quoted = json.dumps(name[:_NAME_CHARACTERS].rstrip("-") or "spindown")
    place, named_by = _choose_region(region)
    # What follows is checked with the workload, also where that is another.
    other = "" if region else "; `spindown init --region us-east-1` takes another"
    try:
        parse(tomllib.loads(_fill(_DRAFT, quoted, place)), DraftConfig)
    except tomllib.TOMLDecodeError:
        remedy = f"write a region of the form us-east-1{other}"
        raise BadInput(named_by, place, remedy) from None
    except ConfigError as exc:
        raise BadInput(named_by, place, f"{exc.remedy}{other}") from exc
    if not region and named_by:
        print_aside(f"takes {place} ({named_by}); --region names another")
    return _fill(_DRAFT if has_main else _HEAD + _DEPLOYMENT + _VERIFY, quoted, place)


def _choose_region(given: str | None) -> tuple[str, str]:
    """Return the region of a new file, and what names it; "": nothing does."""
    if given is not None:
        return given, "--region"
    from spindown.cli.session import configured_region  # noqa: PLC0415 - slow

    try:
        return configured_region() or (_DEFAULT_REGION, "")
    except BadInput as exc:
        return _DEFAULT_REGION, str(exc)


def first_document() -> dict[str, Any]:
    """Return what a new project's spindown.toml says, for one that has none."""
    return tomllib.loads(_fill(_DRAFT, '"spindown"', _DEFAULT_REGION))


def _fill(draft: str, quoted: str, region: str) -> str:
    zones = json.dumps([f"{region}a", f"{region}b"])
    return draft.format(quoted=quoted, region=region, zones=zones)


def _read(config: Path) -> str:
    try:
        text = config.read_text(encoding="utf-8")
        tomllib.loads(text)
    except UnicodeDecodeError as exc:
        raise BadInput("--config", str(config), "save it as UTF-8") from exc
    except tomllib.TOMLDecodeError as exc:
        raise BadInput("--config", str(config), f"fix its TOML: {exc}") from exc
    return text


def _write_rest(config: Path, *, has_main: bool) -> Iterator[Path]:
    """Write what else a project needs, but for what is there already; yield each file."""
    app: dict[str, Any] = {"app": "spindown-app", "output": "cdk.out"}
    if config.name != option.CONFIG_FILE.name:
        app["context"] = {"config": config.name}
    texts = {"cdk.json": json.dumps(app, indent=2) + "\n", ".gitignore": IGNORED}
    if has_main and not (config.parent / "code").exists():
        texts["code/main.py"] = CODE
    for name, text in texts.items():
        path = config.parent / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            yield path


def _tell(
    config: Path,
    made: Sequence[Path],
    found: "Survey | None",
    *,
    is_new: bool,
    local: bool,
    as_json: bool,
) -> None:
    if as_json:
        print(json.dumps({"config": str(config), "survey": encode(found) if found else None}))
        return
    named = f" --config {shlex.quote(str(config))}" if config != option.CONFIG_FILE else ""
    for path in (config, *made):
        print(f"{'Wrote' if is_new else 'Filled in'} {path}")
    if found is None:
        print(f"Try it here: spindown local up{named}")
        print(f"Fill in the zones of your account: spindown init --from-account{named}")
        return
    from spindown.cli.account import describe  # noqa: PLC0415 - slow

    for line in describe(found):
        print(line)
    print(f"Next: spindown doctor{named}{' --local' if local else ''}")
