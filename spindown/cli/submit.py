"""``spindown submit``: put work on the queue."""

import glob
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path, PurePosixPath
from random import SystemRandom
from typing import Annotated, Any, NamedTuple

import typer

from spindown.cli import option
from spindown.cli.render.line import print_aside
from spindown.cli.sender import Sender, check_needs, check_type, open_sender
from spindown.cli.wait import going_on, is_well, say_trouble, sending, told_why, wait_for
from spindown.config import WorkloadConfig
from spindown.contract.codec import encode, from_json
from spindown.contract.job.batch import Batch
from spindown.contract.job.message import (
    parse_items,
)
from spindown.contract.location import is_whole
from spindown.contract.pack import is_hidden
from spindown.domain.batch import OnFailure
from spindown.error import BadInput, SpindownError
from spindown.job.submit import (
    ITEMS_PER_JOB,
    Draft,
    Tell,
    check_after,
    check_name,
    check_unused,
    name_batch,
    own_folder,
    submit_items,
    submit_uri,
    upload,
)
from spindown.reason_text import say_count

#: A text that begins so is the address of an object that a worker downloads.
_S3 = "s3://"
_ADDRESS = re.compile("s3://[^/]+/")


class Files(NamedTuple):
    """The files that are sent, each with its name in the batch."""

    files: Sequence[tuple[Path, str]]
    #: Hidden ones in folders, which are not sent.
    left_out: int


def submit(  # noqa: PLR0913 - each is an option of the command line
    workload: option.Workload,
    sources: Annotated[
        list[str] | None, typer.Argument(help="Files, directories and globs: one item a file.")
    ] = None,
    *,
    items: Annotated[
        Path | None, typer.Option(help="A file of JSON lines, one item a line; - for stdin.")
    ] = None,
    uri: Annotated[
        str | None, typer.Option(help="s3://bucket/items.jsonl, or s3://bucket/prefix/.")
    ] = None,
    items_per_job: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Items in one message; not for --uri.")
    ] = ITEMS_PER_JOB,
    batch: Annotated[
        str | None, typer.Option(help="Name of the batch, never used before; made if not given.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Tenant, for fair shares of one queue.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option(help="key=value for your code; may be repeated.")
    ] = None,
    type_name: Annotated[
        str | None, typer.Option("--type", help="Type of the jobs, as the workload declares it.")
    ] = None,
    requirements: Annotated[
        str | None,
        typer.Option(help="What each job needs, in JSON, such as '{\"memory_gib\": 64}'."),
    ] = None,
    after: Annotated[
        str | None,
        typer.Option(metavar="BATCH", help="Start when this batch is over; W/BATCH of another W."),
    ] = None,
    on_failure: Annotated[
        OnFailure | None,
        typer.Option(
            help="With --after: start or cancel (default), if an item or a job of it has failed."
        ),
    ] = None,
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Send hidden files of a directory too.")
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until all is done; exit 1 if a job or an item failed."),
    ] = False,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Put work on a workload's queue, cut into jobs of one batch."""
    given = [
        name for name, value in (("FILES", sources), ("--items", items), ("--uri", uri)) if value
    ]
    if len(given) != 1:
        remedy = "give exactly one of FILES, --items and --uri: `spindown submit --help`"
        raise BadInput("what to send", " and ".join(given) or None, remedy)
    if on_failure is not None and after is None:
        raise BadInput("--on-failure", on_failure.value, "give it with --after BATCH")
    with sending() as state:
        sender = open_sender(workload, config, deployment=deployment, local=local)
        state.options = sender.options
        draft = Draft(
            workload=workload,
            batch_id=batch or name_batch(datetime.now(UTC), SystemRandom()),
            items_per_job=items_per_job,
            tenant=tenant,
            params=_read_params(param or []),
            type=type_name,
            requirements=_read_requirements(requirements),
            after=after or "",
            on_failure=on_failure or OnFailure.CANCEL,
        )
        if after is not None:
            check_after(after, sender.store_of)
        if sender.config is not None:
            if sender.config.run.folders:
                remedy = "send it a folder with a command: `spindown run -- COMMAND`"
                raise BadInput("workload", workload, remedy)
            _check_type(draft, sender, sender.config)
        if batch is not None:
            check_name(batch)
            check_unused(batch, sender.store)
        files = find_files(sources or [], hidden=hidden)
        if said := sender.say_other_code(config.resolve().parent):
            print_aside(said)
        folder = own_folder(batch, SystemRandom()) if batch is not None else draft.batch_id
        sent = _send(sender, draft, folder, state.note, files=files, items=items, uri=uri)
        sender.nudge()
    announce(sent, sender.options, as_json=as_json)
    if wait:
        _wait(sent, sender)


def _check_type(draft: Draft, sender: Sender, config: WorkloadConfig) -> None:
    """Refuse a job that would become a dead letter.

    A live edit may take what the file refuses: who may not read that is told, and it is sent.
    """
    check_needs(draft)
    disk = config.image.root_volume_gib
    try:
        check_type(draft, config.to_policy(), config.to_requirements(), disk)
    except BadInput as exc:
        try:
            settings, policy = sender.read_policy()
        except SpindownError:
            print_aside(f"{exc}; it is sent, since a live edit of the policy may take it")
            return
        check_type(draft, policy, settings.requirements, settings.run.root_volume_gib)


def _wait(sent: Batch, sender: Sender) -> None:
    """Wait until a batch is over; say why it is not well, and exit 1."""
    with going_on(sent.batch_id, sender.options):
        ends = wait_for(
            sent.jobs,
            sender.store,
            items=sent.items,
            options=sender.options,
            meanwhile=told_why(
                sender.check_there,
                sender.read_view,
                sender.aws.clock.now,
                partial(sender.expect_shape, sent.jobs),
            ),
        )
    if not is_well(ends):
        for line in say_trouble(sent.batch_id, ends, sender.store, sender.options):
            print_aside(line)
        raise typer.Exit(1)


def _send(
    sender: Sender,
    draft: Draft,
    folder: str,
    begun: Tell,
    *,
    files: Files,
    items: Path | None,
    uri: str | None,
) -> Batch:
    queue, store = sender.queue, sender.store
    if uri is not None:
        if not _ADDRESS.match(uri):
            remedy = "write it as s3://bucket/items.jsonl, or s3://bucket/prefix/"
            raise BadInput("--uri", uri, remedy)
        sender.check_readable(uri)
        kind = "prefix_uri" if uri.endswith("/") else "items_uri"
        return submit_uri({kind: uri}, draft, queue=queue, store=store, begun=begun)
    if items is None:
        found = _upload(sender, folder, files)
        return submit_items(found, draft, queue=queue, store=store, begun=begun)
    values = _read_items(items)
    for value in values:
        if isinstance(value, str) and value.startswith(_S3):
            sender.check_readable(value)
    return submit_items(values, draft, queue=queue, store=store, begun=begun)


def _read_items(path: Path) -> tuple[Any, ...]:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as exc:
        raise BadInput("--items", str(path), f"give a readable file ({exc.strerror})") from exc
    if data.lstrip().startswith(b"[\n"):
        remedy = "write one item a line; a list over several lines is not read"
        raise BadInput("--items", str(path), remedy)
    values = parse_items(data, path.name)
    if len(values) == 1 and isinstance(values[0], list) and len(values[0]) > 1:
        count = len(values[0])
        print_aside(f"{path.name} is one item, a list; write a line for each of {count} values")
    return values


def _upload(sender: Sender, folder: str, files: Files) -> Iterator[str]:
    if files.left_out:
        print_aside(f"{say_count(files.left_out, 'hidden file')} left out; --hidden sends them")
    return upload(
        files.files,
        store=sender.store,
        root=sender.root,
        folder=folder,
    )


def find_files(sources: list[str], *, hidden: bool = False) -> Files:
    """Return the files that paths, directories and globs name.

    Args:
        sources: what a person has named.
        hidden: whether hidden files in a named folder are sent too; one that is named itself is.

    Raises:
        BadInput: a source names no file, or two files would have one name.
    """
    found: dict[str, Path] = {}
    left_out = 0
    for source in sources:
        # A shell has expanded its globs, and a file's name may look like another one.
        is_there = os.path.lexists(source)
        matches = [source] if is_there else glob.glob(source, recursive=True)  # noqa: PTH207 - Path.glob takes no absolute pattern
        every = [pair for top in sorted(map(Path, matches)) for pair in _files_of(top)]
        files = [path for path, is_hidden in every if hidden or not is_hidden]
        left_out += len(every) - len(files)
        if not files:
            raise BadInput("FILES", source, _without_file(source, has_hidden=bool(every)))
        for path in files:
            if not is_whole(str(path)):
                raise BadInput("FILES", str(path), "rename it: its name is not UTF-8")
            other = found.setdefault(name := _name(path), path)
            if other.absolute() != path.absolute() and not other.samefile(path):
                remedy = f"rename it, or send it by itself: {name} is {other} in the batch"
                raise BadInput("FILES", str(path), remedy)
    return Files([(path, name) for name, path in found.items()], left_out)


def _without_file(source: str, *, has_hidden: bool) -> str:
    if source.startswith(_S3):
        return "give it with --uri: a list (.jsonl), or a prefix that ends in /"
    if has_hidden:
        return "name its files, or submit it with --hidden: all that it has is hidden"
    if os.path.isdir(source):  # noqa: PTH112 - as a shell has it
        return "put a file into it: this directory is empty"
    return "name a file or a directory that is there, or a glob that matches one"


def _files_of(top: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the files that a path stands for, and whether a folder hides them."""
    if not top.is_dir():
        if top.is_file():
            yield top, False
        return
    for path in sorted(_below(top, ())):
        yield path, is_hidden(PurePosixPath(path.relative_to(top).as_posix()))


def _below(folder: Path, above: Sequence[Path]) -> Iterator[Path]:
    """Yield the files below a folder, and below those that links in it lead to.

    A link to a folder that it lies in itself leads to nothing new.

    Args:
        folder: where to look.
        above: the folders on the way to it, without links.
    """
    real = folder.resolve()
    if real in above:
        return
    for path in folder.iterdir():
        if path.is_dir():
            yield from _below(path, (*above, real))
        elif path.is_file():
            yield path


def _name(path: Path) -> str:
    parts = PurePosixPath(os.path.normpath(path)).parts
    return "/".join(part for part in parts if part not in {"/", ".."})


def _read_params(pairs: list[str]) -> dict[str, str]:
    params = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadInput("--param", pair, "write it as key=value")
        params[key] = value
    return params


def _read_requirements(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    read = from_json("--requirements", text, "write a JSON object")
    if not isinstance(read, dict):
        raise BadInput("--requirements", text, 'write a JSON object such as {"memory_gib": 64}')
    return read


def announce(batch: Batch, options: str, *, as_json: bool) -> None:
    """Print what was sent."""
    if as_json:
        print(json.dumps(encode(batch)))
        return
    items = "items still to be read" if batch.items is None else say_count(batch.items, "item")
    print(f"{batch.batch_id}: {items} in {say_count(len(batch.jobs), 'job')}")
    if batch.after:
        print(f"It starts when {batch.after} is over.")
    print(f"See them with: spindown results {batch.batch_id}{options}")
