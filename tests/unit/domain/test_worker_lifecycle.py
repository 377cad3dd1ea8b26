"""The life of a worker as a table and as properties: every event in every order."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.offer import CapacityType
from spindown.domain.policy import Dispatch, Policy, WhenSpent
from spindown.domain.reason import ReasonCode
from spindown.domain.worker_lifecycle import (
    HANG_GRACE,
    STOP_GRACE_AT_MOST,
    AbandonSlot,
    AskToEnd,
    AwaitReclaim,
    BeginDraining,
    CheckedIn,
    Command,
    CutPoll,
    Doing,
    Drain,
    Drained,
    EndAnswered,
    EndSlot,
    EndUnheard,
    Exit,
    Habits,
    LastPoll,
    LastPolled,
    Lifecycle,
    MarkUnfit,
    Noticed,
    Phase,
    PolicySeen,
    Poll,
    Polled,
    PowerOff,
    PutBack,
    PutLastBack,
    RebalanceAdvised,
    ReleaseJob,
    RowSeen,
    SlotDone,
    SlotEnded,
    SlotFailed,
    SlotFaulted,
    SlotReady,
    Standing,
    Stop,
    Take,
    TellNotice,
    TellRebalance,
    TimePassed,
    WasCondemned,
    WorkerEvent,
    hang_grace,
    next_at,
    step,
)
from tests.builders import NOW

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
POLICY = Policy(commit_margin=10 * SECOND, max_lifetime=4 * HOUR, lifetime_grace=5 * MINUTE)
STANDING = Standing(policy=POLICY, idle_timeout=2 * MINUTE)
HABITS = Habits(code_digest="d", outdated_for=6 * MINUTE)


class Driver:
    """Tells events one after the other and keeps what is commanded."""

    def __init__(self, slots: int = 1, habits: Habits = HABITS, **standing: Any) -> None:
        self.now = NOW
        self.state = Lifecycle(habits=habits, standing=replace(STANDING, **standing))
        self.commands: list[Command] = []
        self.tell(CheckedIn, NOW, CapacityType.SPOT, slots)
        for number in range(slots):
            self.tell(SlotReady, number)

    def tell(self, event: Callable[..., WorkerEvent], *args: Any) -> list[Command]:
        self.state, commands = step(self.state, event(self.now, *args))
        self.commands += commands
        return list(commands)

    def wait(self, length: timedelta) -> list[Command]:
        self.now += length
        return self.tell(TimePassed)

    def take(self, slot: int = 0) -> None:
        """Let a slot find a message and begin to work."""
        assert self.tell(Polled, slot, True)[0] == Take(slot)


def a_busy_worker(slots: int = 1, habits: Habits = HABITS) -> Driver:
    one = Driver(slots, habits)
    for slot in range(slots):
        one.take(slot)
    one.commands.clear()
    return one


def test_one_slot_polls_at_a_time_and_the_next_follows() -> None:
    one = Driver(2)
    assert one.commands == [Poll(0, 20 * SECOND)]
    assert one.tell(Polled, 0, False) == [Poll(1, 20 * SECOND)]
    assert one.tell(Polled, 1, True) == [Take(1), Poll(0, 20 * SECOND)]


@pytest.mark.parametrize(
    ("idle", "poll", "rest"),
    [(0, 20, 0.0), (19.5, 20, 0.0), (40, 20, 5.0), (60, 20, 10.0), (85, 19, 16.25)],
)
def test_polls_not_past_the_idle_timeout_and_rests_longer(
    idle: float, poll: float, rest: float
) -> None:
    one = Driver()
    one.now += timedelta(seconds=idle)
    answer = one.tell(Polled, 0, False)
    if rest:
        assert (answer, next_at(one.state)) == ([], one.now + timedelta(seconds=rest))
        answer = one.wait(timedelta(seconds=rest))
    assert answer == [Poll(0, timedelta(seconds=poll))]


def test_a_warm_worker_polls_at_length_without_a_pause() -> None:
    one = Driver()
    one.tell(RowSeen, NOW + HOUR)
    one.now += 30 * MINUTE
    assert one.tell(Polled, 0, False) == [Poll(0, 20 * SECOND)]
    assert one.wait(29 * MINUTE) == []
    assert one.wait(MINUTE) == [CutPoll(0)]
    assert one.tell(Polled, 0, False) == [LastPoll()]


def test_an_idle_worker_ends_after_one_last_poll() -> None:
    one = Driver(2)
    one.tell(Polled, 0, False)
    assert next_at(one.state) == NOW + 2 * MINUTE
    assert one.wait(2 * MINUTE) == [CutPoll(1)]
    assert one.tell(Polled, 1, False) == [LastPoll()]
    assert one.tell(LastPolled, False) == [AskToEnd(ReasonCode.IDLE, 2 * MINUTE)]
    assert one.tell(EndAnswered, True) == [
        BeginDraining(ReasonCode.IDLE, knows=True),
        EndSlot(0),
        EndSlot(1),
    ]
    assert one.tell(SlotEnded, 0) == []
    assert one.tell(SlotEnded, 1) == [Drain(ReasonCode.IDLE, knows=True)]
    assert one.tell(Drained) == [PowerOff()]
    assert one.state.phase is Phase.ENDED


def at_its_last_poll(slots: int = 1) -> Driver:
    one = Driver(slots)
    one.wait(2 * MINUTE)
    assert one.tell(Polled, 0, False) == [LastPoll()]
    return one


@pytest.mark.parametrize("outcome", [None, ("job", False)], ids=["released", "completed"])
def test_a_dedicated_worker_ends_with_its_job(outcome: tuple[str, bool] | None) -> None:
    one = Driver(dispatch=Dispatch.DEDICATED)
    one.take()
    assert one.tell(SlotDone, 0, True, outcome) == [
        BeginDraining(ReasonCode.JOB_OVER, knows=False),
        EndSlot(0),
    ]
    assert one.tell(SlotEnded, 0) == [Drain(ReasonCode.JOB_OVER, knows=False)]
    assert one.tell(Drained) == [PowerOff()]


def test_a_dedicated_worker_whose_job_failed_is_unfit() -> None:
    one = Driver(dispatch=Dispatch.DEDICATED)
    one.take()
    assert one.tell(SlotDone, 0, True, ("job", True)) == [
        BeginDraining(ReasonCode.JOBS_FAILED, knows=False),
        MarkUnfit(ReasonCode.JOBS_FAILED),
        EndSlot(0),
    ]


def test_what_was_no_job_of_its_own_ends_it_not() -> None:
    one = Driver(dispatch=Dispatch.DEDICATED)
    one.take()
    assert one.tell(SlotDone, 0, False) == [Poll(0, 20 * SECOND)]
    assert not one.state.is_finishing


@pytest.mark.parametrize(("seconds", "takes"), [(45, True), (60, False), (75, False)])
def test_it_takes_another_job_in_its_paid_minute(seconds: int, takes: bool) -> None:
    one = Driver(dispatch=Dispatch.DEDICATED)
    one.tell(RowSeen, NOW + MINUTE)
    one.take()
    one.now += timedelta(seconds=seconds)
    one.tell(SlotDone, 0, True, ("job", False))
    assert one.state.is_finishing is not takes


def test_a_notice_ends_it_before_its_job_does() -> None:
    one = Driver(dispatch=Dispatch.DEDICATED)
    one.take()
    one.tell(Noticed, NOW + 2 * MINUTE)
    one.tell(SlotDone, 0, True)
    assert one.state.reason is ReasonCode.INTERRUPTED


def test_a_message_at_the_last_poll_is_worked_on() -> None:
    one = at_its_last_poll(2)
    assert one.tell(LastPolled, True) == [Take(0), Poll(1, timedelta(0))]
    assert one.state.phase is Phase.WORKING


def test_an_end_that_is_refused_is_asked_for_again() -> None:
    one = at_its_last_poll()
    one.tell(LastPolled, False)
    assert one.tell(EndAnswered, False) == [Poll(0, timedelta(0))]
    one.tell(Polled, 0, False)
    assert one.wait(SECOND) == [LastPoll()]


@pytest.mark.parametrize(
    ("denied", "idle", "ends"),
    [(False, 2, False), (False, 4, True), (True, 2, True)],
    ids=["soon", "after the delay", "denied"],
)
def test_a_silent_ledger_keeps_an_idle_worker_for_a_while(
    denied: bool, idle: int, ends: bool
) -> None:
    one = at_its_last_poll()
    one.now = NOW + idle * MINUTE
    one.tell(EndUnheard, denied)
    assert one.state.is_finishing is ends
    assert one.state.reason is (ReasonCode.IDLE_UNHEARD if ends else ReasonCode.NONE)


def test_a_message_of_the_last_poll_goes_back_after_a_notice() -> None:
    one = at_its_last_poll()
    one.tell(Noticed, one.now + 2 * MINUTE)
    one.tell(SlotEnded, 0)
    assert not [c for c in one.commands if isinstance(c, Drain)]
    assert one.tell(LastPolled, True) == [PutLastBack(), Drain(ReasonCode.INTERRUPTED, knows=False)]


def _following(one: Driver, when_spent: WhenSpent) -> Driver:
    policy = replace(POLICY, when_spent=when_spent)
    one.tell(PolicySeen, replace(STANDING, policy=policy))
    return one


def _see_spent(one: Driver) -> list[Command]:
    return one.tell(RowSeen, None, None, None, None, one.now)


REASONS: dict[str, tuple[Callable[[Driver], object], ReasonCode, timedelta | None]] = {
    "a notice": (
        lambda one: one.tell(Noticed, one.now + 2 * MINUTE),
        ReasonCode.INTERRUPTED,
        110 * SECOND,
    ),
    "a notice in the row": (
        lambda one: one.tell(RowSeen, None, one.now + MINUTE),
        ReasonCode.INTERRUPTED,
        50 * SECOND,
    ),
    "condemned": (lambda one: one.tell(WasCondemned), ReasonCode.CONDEMNED, timedelta(0)),
    "migrated": (
        lambda one: one.tell(RowSeen, None, None, None, one.now),
        ReasonCode.MIGRATED,
        timedelta(0),
    ),
    "the budget, to finish": (
        _see_spent,
        ReasonCode.BUDGET_SPENT,
        None,
    ),
    "the budget, to stop": (
        lambda one: _see_spent(_following(one, WhenSpent.STOP)),
        ReasonCode.BUDGET_SPENT,
        timedelta(0),
    ),
    "stopped": (lambda one: one.tell(Stop), ReasonCode.STOPPED, 20 * SECOND),
    "lifetime": (
        lambda one: one.wait(4 * HOUR),
        ReasonCode.LIFETIME,
        5 * MINUTE - 10 * SECOND,
    ),
    "no room by the row": (
        lambda one: one.tell(RowSeen, None, None, None, None, None, one.now),
        ReasonCode.NO_ROOM,
        None,
    ),
    "no room": (
        lambda one: one.tell(PolicySeen, replace(STANDING, policy=replace(POLICY, max_workers=0))),
        ReasonCode.NO_ROOM,
        None,
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_ends_a_worker_and_by_when_it_gives_back(name: str) -> None:
    act, reason, leaves_in = REASONS[name]
    one = a_busy_worker(2)
    act(one)
    assert one.state.reason is reason
    assert [c for c in one.commands if isinstance(c, BeginDraining)] == [
        BeginDraining(reason, knows=False)
    ]
    if leaves_in is None:
        assert one.state.leave_by is None
        assert one.wait(HOUR) == []
        return
    assert one.state.leave_by == one.now + leaves_in
    one.wait(leaves_in)
    assert [c for c in one.commands if isinstance(c, ReleaseJob)] == [ReleaseJob(0), ReleaseJob(1)]
    assert one.wait(29 * SECOND) == []
    assert one.wait(SECOND) == [AbandonSlot(0), AbandonSlot(1), Drain(reason, knows=False)]


@pytest.mark.parametrize(
    ("stop_grace", "most"),
    [
        (timedelta(0), HANG_GRACE),
        (10 * SECOND, HANG_GRACE),
        (10 * SECOND + timedelta(milliseconds=1), HANG_GRACE + timedelta(milliseconds=1)),
        (STOP_GRACE_AT_MOST, STOP_GRACE_AT_MOST + 20 * SECOND),
    ],
)
def test_a_slot_that_hangs_is_left_behind_after(stop_grace: timedelta, most: timedelta) -> None:
    assert hang_grace(stop_grace) == most
    one = a_busy_worker(1, replace(HABITS, hang_grace=hang_grace(stop_grace)))
    one.tell(Stop)
    one.wait(HABITS.stop_grace)
    assert one.commands[-1] == ReleaseJob(0)

    assert one.wait(most - timedelta(milliseconds=1)) == []
    assert AbandonSlot(0) in one.wait(timedelta(milliseconds=1))


def test_a_policy_may_hasten_the_end_by_the_budget() -> None:
    one = a_busy_worker()
    _see_spent(one)
    assert one.state.leave_by is None
    _following(one, WhenSpent.STOP)
    assert ReleaseJob(0) in _see_spent(one)


def test_who_goes_on_until_idle_goes_on() -> None:
    one = a_busy_worker()
    _following(one, WhenSpent.STOP_LAUNCHES)
    assert _see_spent(one) == []
    assert not one.state.is_finishing


@pytest.mark.parametrize("is_known", [False, True], ids=["by EC2", "by the row"])
def test_a_rebalance_advice_saves_state_and_ends_nothing(is_known: bool) -> None:
    one = Driver()

    def hear() -> list[Command]:
        if is_known:
            return one.tell(RowSeen, None, None, NOW)
        return one.tell(RebalanceAdvised, NOW)

    assert hear() == [TellRebalance(NOW, is_known)]
    assert hear() == []
    assert one.state.is_at_risk_since(NOW)
    assert one.tell(Polled, 0, True) == [Take(0)]
    assert one.wait(HOUR) == []
    one.tell(SlotDone, 0, True)
    assert one.commands[-1] == Poll(0, 20 * SECOND)


def test_the_first_reason_stays_and_time_only_shortens() -> None:
    one = a_busy_worker()
    _see_spent(one)
    one.tell(Noticed, one.now + 2 * MINUTE)
    assert one.tell(WasCondemned) == [ReleaseJob(0)]
    one.tell(Stop)
    assert (one.state.reason, one.state.leave_by) == (ReasonCode.BUDGET_SPENT, one.now)
    assert len([c for c in one.commands if isinstance(c, TellNotice)]) == 1


def test_a_worker_that_finishes_its_last_job_grows_old_too() -> None:
    one = a_busy_worker()
    _see_spent(one)
    one.wait(4 * HOUR)
    assert one.state.leave_by == one.now + 5 * MINUTE - 10 * SECOND


@pytest.mark.parametrize(
    ("digests", "ends"),
    [("eeeeeeee", True), ("eeeeee", False), ("eeededee", False), ("dddddddd", False)],
)
def test_other_code_must_have_been_deployed_for_long(digests: str, ends: bool) -> None:
    one = Driver()
    for digest in digests:
        one.tell(RowSeen, one.now + HOUR)
        one.tell(PolicySeen, replace(STANDING, code_digest=digest))
        one.now += MINUTE
    assert (one.state.reason is ReasonCode.OTHER_CODE) is ends


def test_an_unknown_digest_is_not_other_code() -> None:
    one = Driver()
    one.tell(PolicySeen, STANDING)
    one.now += MINUTE
    one.tell(PolicySeen, STANDING)
    assert one.state.outdated_since is None


def work(one: Driver, job: str, *, failed: bool) -> None:
    one.tell(Polled, 0, True)
    one.tell(SlotDone, 0, True, (job, failed))


def test_three_failed_jobs_in_a_row_quarantine_the_machine() -> None:
    one = Driver()
    work(one, "good", failed=False)
    for job in "aab":
        work(one, job, failed=True)
    assert not one.state.is_finishing
    work(one, "c", failed=True)
    assert one.state.reason is ReasonCode.JOBS_FAILED
    assert MarkUnfit(ReasonCode.JOBS_FAILED) in one.commands


def test_faults_back_off_and_the_third_in_a_row_is_the_last() -> None:
    one = Driver()
    for seconds in (1, 2):
        one.take()
        assert one.tell(SlotFaulted, 0, False) == []
        assert next_at(one.state) == one.now + seconds * SECOND
        assert one.wait(seconds * SECOND) == [Poll(0, 20 * SECOND)]
    one.take()
    one.tell(SlotFaulted, 0, False)
    assert MarkUnfit(ReasonCode.FAULTY) in one.commands
    assert one.state.reason is ReasonCode.FAULTY


def test_one_unkillable_process_is_enough() -> None:
    one = a_busy_worker()
    assert MarkUnfit(ReasonCode.FAULTY) in one.tell(SlotFaulted, 0, True)


def test_back_off_doubles_up_to_half_a_minute_and_is_reset() -> None:
    one, waits = Driver(idle_timeout=HOUR), []
    for _ in range(7):
        one.tell(SlotFailed, 0)
        at = next_at(one.state)
        assert at is not None
        waits.append((at - one.now) / SECOND)
        one.wait(at - one.now)
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    work(one, "a", failed=False)
    one.tell(SlotFailed, 0)
    assert next_at(one.state) == one.now + SECOND


def test_a_clock_set_back_prolongs_neither_rest_nor_idleness() -> None:
    one = Driver()
    one.tell(SlotFailed, 0)
    one.now -= HOUR
    assert one.tell(TimePassed) == [Poll(0, 20 * SECOND)]
    assert one.state.slots[0].free_since == one.now


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
def test_waits_for_a_reclaim_that_costs_nothing(is_told: bool) -> None:
    one = Driver()
    deadline = one.now + 2 * MINUTE
    one.tell(Noticed, deadline)
    one.tell(Polled, 0, False)
    one.tell(SlotEnded, 0)
    assert one.tell(Drained) == [AwaitReclaim(deadline)]
    if is_told:
        assert one.tell(Stop) == [Exit()]
        return
    one.now = deadline + 5 * MINUTE
    assert one.tell(TimePassed) == []
    assert one.wait(SECOND) == [PowerOff()]


def test_asked_to_stop_before_its_check_in_it_works_on_nothing() -> None:
    state = Lifecycle(habits=HABITS, standing=STANDING)
    state, commands = step(state, Stop(NOW))
    assert commands == ()
    state, commands = step(state, CheckedIn(NOW, NOW, CapacityType.SPOT, 1))
    assert commands == (BeginDraining(ReasonCode.STOPPED, knows=False), EndSlot(0))


def test_what_comes_while_it_finishes_is_put_back() -> None:
    one = Driver()
    one.tell(WasCondemned)
    assert one.tell(Polled, 0, True) == [PutBack(0), EndSlot(0)]


# Whatever happens, in whatever order. The driver here is honest, and otherwise as rude as it can.

_EVENTS: Sequence[Callable[[datetime], WorkerEvent]] = [
    lambda now: Noticed(now, now + 2 * MINUTE),
    lambda now: RowSeen(now, now + 3 * MINUTE),
    lambda now: RowSeen(now, None, now + MINUTE),
    lambda now: RowSeen(now, None, None, now),
    lambda now: RowSeen(now, None, None, None, now),
    lambda now: RowSeen(now, None, None, None, None, now),
    lambda now: RowSeen(now, None, None, None, None, None, now),
    lambda now: RebalanceAdvised(now, now),
    WasCondemned,
    Stop,
    lambda now: PolicySeen(now, replace(STANDING, policy=replace(POLICY, max_workers=0))),
    lambda now: PolicySeen(now, replace(STANDING, idle_timeout=timedelta(0))),
    lambda now: PolicySeen(now, replace(STANDING, code_digest="e")),
    lambda now: PolicySeen(now, replace(STANDING, dispatch=Dispatch.DEDICATED)),
    TimePassed,
]


class Rude:
    """Answers commands as chance wants, checks what must hold, and goes on to the end."""

    def __init__(self, draw: Callable[[int], int], slots: int) -> None:
        self.draw = draw
        self.now = NOW
        self.state = Lifecycle(habits=HABITS, standing=STANDING)
        #: Slots with a job, and commands whose answer is still to come.
        self.busy: set[int] = set()
        self.open: list[Command] = []
        self.gave_back_at: datetime | None = None
        self.ends: list[Command] = []
        self.tell(CheckedIn(NOW, NOW, CapacityType.SPOT, slots))
        for number in range(slots):
            self.tell(SlotReady(self.now, number))

    def tell(self, event: WorkerEvent) -> None:
        was_finishing, before = self.state.is_finishing, self.state.leave_by
        self.state, commands = step(self.state, event)
        assert self.state.is_finishing >= was_finishing
        assert before is None or (self.state.leave_by or before) <= before
        for command in commands:
            match command:
                case Take():
                    assert not was_finishing or not self.state.is_finishing
                    assert not self.state.is_finishing, "takes no job once it finishes"
                    self.busy.add(command.slot)
                case Poll() | LastPoll():
                    assert not self.state.is_finishing
                    polls = [c for c in self.open if isinstance(c, Poll | LastPoll)]
                    assert polls == [], "one poll at a time"
                    self.open.append(command)
                case ReleaseJob():
                    assert self.state.leave_by is not None
                    self.gave_back_at = self.gave_back_at or self.now
                case EndSlot() | AskToEnd() | Drain():
                    self.open.append(command)
                case PowerOff() | Exit():
                    assert not self.busy or AbandonSlot in map(type, self.ends)
                    self.ends.append(command)
                case AbandonSlot():
                    self.ends.append(command)

    def answer(self, command: Command) -> None:
        chance = self.draw(5)
        match command:
            case Poll(slot=slot):
                failed = chance == 0
                found = chance in {1, 2}
                self.tell(SlotFailed(self.now, slot) if failed else Polled(self.now, slot, found))
            case LastPoll():
                self.tell(
                    EndUnheard(self.now, denied=False)
                    if chance == 0
                    else LastPolled(self.now, chance == 1)
                )
            case AskToEnd():
                self.tell(EndAnswered(self.now, chance > 1))
            case EndSlot(slot=slot):
                self.tell(SlotEnded(self.now, slot))
            case Drain():
                self.tell(Drained(self.now))

    def go_on(self, *, is_at_rest: bool) -> None:
        """Do one thing: an answer, the end of a job, an event, or let time pass."""
        choice = self.draw(4)
        if self.open and choice < 2:
            self.answer(self.open.pop(0))
        elif self.busy and choice == 2:
            slot = sorted(self.busy)[self.draw(len(self.busy))]
            self.busy.discard(slot)
            if self.draw(6) == 0:
                self.tell(SlotFaulted(self.now, slot))
            else:
                outcome = (f"job-{self.draw(9)}", self.draw(3) == 0)
                self.tell(SlotDone(self.now, slot, self.draw(3) > 0, outcome))
        elif not is_at_rest:
            self.now += timedelta(seconds=self.draw(200))
            self.tell(_EVENTS[self.draw(len(_EVENTS))](self.now))
        else:
            self.pass_time()

    def pass_time(self) -> None:
        at = next_at(self.state)
        if at is not None:
            self.now = max(at, self.now)
            self.tell(TimePassed(self.now))


@given(st.randoms(use_true_random=False), st.integers(1, 3), st.integers(0, 60))
def test_always_ends_takes_nothing_more_and_leaves_in_time(
    random: Any, slots: int, steps: int
) -> None:
    one = Rude(random.randrange, slots)
    for _ in range(steps):
        one.go_on(is_at_rest=False)
    # From here no event comes but answers, the ends of jobs, and time.
    for _ in range(5000):
        if one.state.phase is Phase.ENDED:
            break
        one.go_on(is_at_rest=True)
    assert one.state.phase is Phase.ENDED
    assert {type(c) for c in one.ends} & {PowerOff, Exit}
    for slot in one.state.slots:
        assert slot.doing in {Doing.ENDED, Doing.LEFT, Doing.BUSY, Doing.RESTING}


@given(st.randoms(use_true_random=False), st.integers(1, 3), st.integers(0, 60))
def test_held_jobs_are_asked_back_when_they_must_leave(random: Any, slots: int, steps: int) -> None:
    one = Rude(random.randrange, slots)
    for _ in range(steps):
        one.go_on(is_at_rest=False)
        held = one.busy and one.state.phase is Phase.FINISHING
        if held and one.state.must_leave(one.now):
            assert one.state.is_giving_back
        at = next_at(one.state)
        if held and one.state.leave_by is not None and not one.state.is_giving_back:
            assert at is not None
            assert at <= one.state.leave_by, "the driver is woken in time"


@given(st.randoms(use_true_random=False), st.integers(1, 3), st.integers(0, 60))
def test_time_alone_never_stands_still(random: Any, slots: int, steps: int) -> None:
    one = Rude(random.randrange, slots)
    for _ in range(steps):
        one.go_on(is_at_rest=False)
    at = next_at(one.state)
    if at is not None:
        state, _ = step(one.state, TimePassed(max(at, one.now)))
        assert state != one.state
