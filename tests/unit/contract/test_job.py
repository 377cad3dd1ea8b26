"""Job messages: whatever the text, a job or one sentence."""

import hashlib
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spindown.contract.codec import DEPTH_MAX
from spindown.contract.job.message import (
    JobMessage,
    body_digest,
    child_id,
    encode_items,
    encode_job,
    encode_stored,
    parse_items,
    parse_job,
    parse_stored,
    with_id,
)
from spindown.error import ContractError, NewerSchema

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
DIGEST = "0a" * 32
NAMES = st.sampled_from(
    [
        *("items", "items_uri", "prefix_uri", "stored", "job_id", "batch_id"),
        *("tenant", "parent", "params", "schema", "itens"),
    ]
)


@given(st.text() | st.dictionaries(NAMES, JSON).map(json.dumps))
@example('{"items": [1]}')
@example("[" * 50_000)
@example('{"items": [1e999]}')
@example('{"items": ["\\ud800"]}')
@example('{"items": ' + "[" * 900 + "]" * 900 + "}")
@example('{"items": ' + "9" * 5000 + "}")
@example('{"job_id": null, "items": []}')
def test_any_text_is_a_job_or_one_sentence(text: str) -> None:
    try:
        job = parse_job(text)
    except ContractError as exc:
        sentence = str(exc)
        assert sentence.startswith("message.")
        assert len(sentence) < 600
        assert "\n" not in sentence.split(": ", 1)[1]
        return
    assert parse_job(encode_job(job)) == job


@given(st.lists(JSON))
def test_items_come_back_from_json_lines(items: list[Any]) -> None:
    assert parse_items(encode_items(items), "list") == tuple(items)


@given(st.binary())
def test_any_bytes_are_items_or_a_contract_error(data: bytes) -> None:
    with suppress(ContractError):
        assert all(json.dumps(item) for item in parse_items(data, "list"))


@pytest.mark.parametrize(
    ("body", "job"),
    [
        ({"items": []}, JobMessage(items=())),
        ({"items": [1, {"a": None}]}, JobMessage(items=(1, {"a": None}))),
        ({"items_uri": "s3://bucket/a b.jsonl"}, JobMessage(items_uri="s3://bucket/a b.jsonl")),
        ({"prefix_uri": "s3://bucket/"}, JobMessage(prefix_uri="s3://bucket/")),
        ({"stored": DIGEST, "job_id": "p"}, JobMessage(stored=DIGEST, job_id="p")),
        ({"stored": DIGEST, "job_id": "p.00001"}, JobMessage(stored=DIGEST, job_id="p.00001")),
        (
            {"items": [], "job_id": "a.b-c_1", "tenant": "x@y", "params": {"k": 1}, "schema": 1},
            JobMessage(items=(), job_id="a.b-c_1", tenant="x@y", params={"k": 1}),
        ),
    ],
    ids=["empty", "inline", "list", "prefix", "stored", "child", "all"],
)
def test_reads_every_form_of_a_job(body: dict[str, Any], job: JobMessage) -> None:
    assert parse_job(json.dumps(body)) == job


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"stored": True}, "message.stored is true: leave it out; only Spindown writes it"),
        ({"stored": DIGEST}, f"message.stored is '{DIGEST}': leave it out"),
        ({"stored": "0A" * 32, "job_id": "j"}, "only Spindown writes it"),
        ({"job_id": "j", "params": {}, "stored": DIGEST}, "only Spindown writes it"),
        ({"job_id": "j", "items": [], "stored": DIGEST}, "only Spindown writes it"),
        ({"items": [], "parent": "p"}, "message.parent is 'p': take this unknown key out"),
        ({}, "exactly one of items, items_uri, prefix_uri"),
        ({"items": [], "tenant": "two words"}, "message.tenant is 'two words'"),
        ({"items": [], "params": []}, "message.params is []: write an object"),
        ({"items": [], "schema": "1"}, "message.schema is '1'"),
        ({"items": [], "schema": True}, "message.schema is true"),
        ({"items": [], "job_id": "x" * 129}, "1 to 128 of"),
        ({"items": [], "job_id": "a/b"}, "message.job_id is 'a/b'"),
        ({"items_uri": "s3://B/k"}, "write it as s3://bucket/key.jsonl"),
        ({"items_uri": "file:///etc/passwd"}, "write it as s3://bucket/key.jsonl"),
        ({"items": [], "command": "rm"}, "message.command is 'rm': take this unknown key out"),
        ({"items": [], "jobid": "x"}, "did you mean job_id?"),
    ],
    ids=lambda value: json.dumps(value)[:30] if isinstance(value, dict) else "",
)
def test_names_the_field_the_value_and_the_remedy(body: dict[str, Any], says: str) -> None:
    with pytest.raises(ContractError) as caught:
        parse_job(json.dumps(body))
    assert says in str(caught.value)


def test_leaves_a_later_schema_to_a_later_version() -> None:
    with pytest.raises(NewerSchema):
        parse_job('{"schema": 2, "anything": 1}')


def test_children_have_ids_of_their_own_within_the_limit() -> None:
    long = "x" * 128
    ids = {child_id(parent, n) for parent in ("a", long, long[:-1] + "y") for n in (0, 1, 99_999)}
    assert len(ids) == 9
    assert max(map(len, ids)) <= 128


@pytest.mark.parametrize("parent", ["a", "a.00000", "x" * 120, "x" * 128])
@pytest.mark.parametrize("number", [0, 99_999, 100_000, 9_999_999])
def test_what_a_split_sends_is_read_again(parent: str, number: int) -> None:
    child = JobMessage(items=(1,), job_id=child_id(parent, number), parent=parent, params={"a": 1})
    data, sent = encode_stored(child)
    pointer = parse_job(encode_job(sent))
    assert pointer == JobMessage(job_id=child.job_id, stored=sent.stored)
    assert parse_stored(data, pointer) == sent == replace(child, stored=sent.stored)
    assert body_digest(sent) == body_digest(child)


def test_a_stored_body_that_was_damaged_is_refused() -> None:
    data, sent = encode_stored(JobMessage(items=(1,), job_id="j"))
    with pytest.raises(ContractError) as caught:
        parse_stored(data + b" ", sent)
    assert caught.value.field == "message.stored"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[1]",
        b"null",
        b'{"items": [' + b"9" * 5000 + b"]}",
        b'{"items": [NaN]}',
        b'{"items": [1e999]}',
        b'{"items": [1], "schema": null}',
        b'{"items": [1], "schema": "2"}',
        b'{"items": ' + b"[" * 99 + b"]" * 99 + b"}",
        b"[" * 100_000,
    ],
)
def test_a_stored_body_that_is_no_job_is_refused(data: bytes) -> None:
    pointer = JobMessage(job_id="j", stored=hashlib.sha256(data).hexdigest())
    with pytest.raises(ContractError):
        parse_stored(data, pointer)


def test_a_stored_body_of_a_later_version_is_left_to_it() -> None:
    data, sent = encode_stored(JobMessage(items=(1,), job_id="j", schema=2))
    with pytest.raises(NewerSchema):
        parse_stored(data, sent)


def test_items_of_a_stored_body_nest_as_deep_as_lines_of_a_list() -> None:
    (item,) = parse_items(b"[" * DEPTH_MAX + b"]" * DEPTH_MAX, "list")
    data, sent = encode_stored(JobMessage(items=(item,), job_id="j"))
    assert parse_stored(data, sent).items == (item,)


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param({"items": []}, id="inline"),
        pytest.param({"items_uri": "s3://bucket/list.jsonl"}, id="list"),
        pytest.param({"prefix_uri": "s3://bucket/"}, id="prefix"),
    ],
)
@pytest.mark.parametrize("job_id", ["a.00000", "a.99999", "a.100000", "a.00000.00000"])
def test_the_id_of_a_child_is_refused_to_what_no_split_sends(
    job_id: str, rest: dict[str, Any]
) -> None:
    with pytest.raises(ContractError) as caught:
        parse_job(json.dumps({"job_id": job_id, **rest}))
    assert (caught.value.field, caught.value.value) == ("message.job_id", job_id)


@pytest.mark.parametrize(
    "job_id",
    ["a.0000", "a.000000", "scan.20261122", "a-00000", "00000", ".00000", "a.00000.png", "a.0000x"],
)
def test_an_id_that_no_child_can_have_is_the_users_own(job_id: str) -> None:
    assert parse_job(json.dumps({"items": [], "job_id": job_id})).job_id == job_id


def test_an_id_that_is_given_is_kept() -> None:
    assert with_id(JobMessage(items=(), job_id="mine"), "message-1").job_id == "mine"
    derived = with_id(JobMessage(items=()), "message-1").job_id
    assert derived == with_id(JobMessage(items=()), "message-1").job_id
    assert derived != with_id(JobMessage(items=()), "message-2").job_id
