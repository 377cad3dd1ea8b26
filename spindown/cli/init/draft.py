"""The first spindown.toml: a text that explains itself, and its lines that an account fills in."""

import re
from collections.abc import Sequence

DRAFT = """\
# What to run, on which instances, and how long it may wait. Every key that is not here has a
# default: docs/settings.md lists them all. Durations carry a unit ("90s", "10m"); money is USD.

[deployment]
name = {quoted:<32} # part of every resource's name
region = "{region}"
# zones = []                            # where to look for capacity; more zones, cheaper items
budget_per_month = 50.0                 # stops launches, never work; leave out for none
# alarm_email = "you@example.com"       # who gets the alarms

# An existing network; without this table a small VPC of public subnets is made.
# [deployment.network]
# vpc_id = "vpc-0123456789abcdef0"
# subnets = {{ {region}a = "subnet-0aaa" }}

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
gpu_count_min = 1
gpu_memory_gib_min = 16                 # of one GPU
architectures = ["x86_64"]

# Each of these can be changed while the system runs: `spindown policy set main ...`.
[workload.main.policy]
start_within = "5m"                     # longest that work may wait for its start
drain_within = "1h"                     # time in which the backlog should be worked off
max_workers = 2
max_price_per_hour = 2.0                # instance, root volume and public IPv4 together
idle_timeout = "auto"                   # learned from your gaps; or a duration such as "10m"
"""

CODE = '''\
"""What a job is made of: batches of items in, one result an item out."""

from collections.abc import Iterator, Sequence

from spindown.user import Context, Item, Result


def setup(ctx: Context) -> None:
    """Load the model here: once in each process, before its first batch."""


def run(batch: Sequence[Item], ctx: Context) -> Iterator[Result]:
    """Replace this by what you do with an item; ``item.path`` is its file, if it is one."""
    for item in batch:
        yield Result(item, {"seen": item.value})
'''

_TABLE = re.compile(r"^[ \t]*\[deployment\][^\n]*\n", re.MULTILINE)
_NEXT_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


def fill_in(text: str, *, region: str, zones: Sequence[str]) -> str:
    """Return the text with region and zones of ``[deployment]`` replaced, else as it was.

    A key that is missing, or is there as a comment only, becomes the table's first.
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
