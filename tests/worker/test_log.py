"""The worker's log: one JSON object a line, on standard output and by shipment."""

import io
import json

from spindown.contract.log import USER_OUTPUT
from spindown.worker.log import open_log
from tests.basket import Basket


def test_logs_one_json_object_a_line() -> None:
    stream = io.StringIO()
    log = open_log(stream).bind(instance_id="i-1")
    log.info("job_claimed", job_id="j")
    try:
        int("no\nnumber")
    except ValueError:
        log.exception("slot_crashed")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["event"], first["job_id"], first["instance_id"]) == ("job_claimed", "j", "i-1")
    assert "ValueError" in second["traceback"]


def test_ships_what_any_part_logs_once_it_has_a_home() -> None:
    stream, basket = io.StringIO(), Basket()
    log = open_log(stream)
    slot = log.bind(slot=0)
    log.info("no_identity_yet")
    log.flush()
    log.ship(basket)
    slot.info("job_claimed", job_id="j")
    assert (basket.waiting, basket.sent) == (["job_claimed"], [])
    slot.flush()
    assert basket.sent == ["job_claimed"]
    assert len(stream.getvalue().splitlines()) == 2


def test_no_two_events_are_equal() -> None:
    stream = io.StringIO()
    log = open_log(stream)
    for _ in range(2):
        log.info(USER_OUTPUT, job_id="j", text="same")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert first["number"] != second["number"]


def test_what_code_prints_waits_for_no_heartbeat() -> None:
    basket = Basket()
    log = open_log(io.StringIO())
    log.ship(basket)
    log.info("job_claimed", job_id="j")
    log.flush_awaited()
    assert basket.sent == []
    log.info(USER_OUTPUT, job_id="j", text="hello")
    log.flush_awaited()
    assert basket.sent == ["job_claimed", USER_OUTPUT]
    log.info("job_completed", job_id="j")
    log.flush_awaited()
    assert basket.waiting == ["job_completed"]


def test_tells_how_many_lines_were_dropped_once() -> None:
    stream, basket = io.StringIO(), Basket(dropped=3)
    log = open_log(stream)
    log.ship(basket)
    log.flush()
    log.flush()
    assert basket.sent == ["log_lines_dropped"]
    assert json.loads(stream.getvalue())["lines"] == 3


def test_no_work_fails_for_a_log_that_cannot_be_shipped() -> None:
    stream = io.StringIO()
    log = open_log(stream)
    log.ship(Basket(fault=RuntimeError("no network")))
    log.flush()
    assert "no network" in json.loads(stream.getvalue())["traceback"]
