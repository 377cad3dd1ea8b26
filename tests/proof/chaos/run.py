"""One run: submit, attack, recover, count."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from spindown.cli.session import Session, connect
from spindown.contract.job.manifest import JobState
from spindown.control.spend import sum_spend
from spindown.ec2sim import Ec2Bill
from spindown.job.result import JobProgress, read_progress, read_records
from spindown.ledger import Ledger
from tests.bounded import RunRecord, is_bounded, most_dollars
from tests.local.waiting import is_quiet
from tests.proof.chaos.money import compare
from tests.proof.chaos.plant import NAME, WORKLOAD, Plant, local_system, pause

ITEMS_PER_JOB = 20
#: A scaler that dies with the lock keeps others out for three minutes; leases, timers and put-backs
#: come on top, on a busy machine.
_RECOVERY_SECONDS = 300.0
#: So it is killed only in the first part of the attack.
_SCALER_SHARE = 0.4
_SCALER = "kill the scaler"
_REGION = "us-east-1"
#: Seconds that an attack may cost: a machine that comes for what another has left behind, and
#: that EC2 bills for a minute at least.
_FOR_NOTHING = 60.0


def run(directory: Path, *, random: Random, seed: int, seconds: float, jobs: int) -> dict[str, Any]:
    """Return the figures of one run; ``faults`` says in words what must not be."""
    with local_system(directory, seed) as system:
        system.deploy()
        plant = Plant(system)
        siege = Siege(plant, connect(NAME, _REGION), random, jobs)
        siege.attack_for(seconds)
        attacks = dict(sorted(siege.attacks.items()))
        recovered_in = siege.recover()
        return {"attacks": attacks, "attacked_seconds": seconds} | siege.judge(recovered_in)


class Siege:
    """Jobs, attacks on whoever works on them, and what is there in the end."""

    def __init__(self, plant: Plant, session: Session, random: Random, jobs: int) -> None:
        self.plant = plant
        self.session = session
        self.random = random
        self.attacks: Counter[str] = Counter()
        self._deck: list[str] = []
        self._under_way: list[threading.Thread] = []
        self.bodies = {
            f"job-{number:03d}": json.dumps(
                {
                    "job_id": f"job-{number:03d}",
                    "items": [f"{number}-{n}" for n in range(ITEMS_PER_JOB)],
                }
            )
            for number in range(jobs)
        }

    # Attack.

    def attack_for(self, seconds: float) -> None:
        """Submit jobs bit by bit, and strike at random meanwhile."""
        waiting = list(self.bodies.values())
        interval = seconds * 0.7 / max(1, len(waiting))
        began_at = submitted_at = time.monotonic()
        while (now := time.monotonic()) - began_at < seconds:
            while waiting and now >= submitted_at:
                self.plant.send_again(waiting.pop(0))
                submitted_at += interval
            self._strike(is_early=now - began_at < _SCALER_SHARE * seconds)
            pause(self.random.uniform(0.2, 2.5))
        for body in waiting:
            self.plant.send_again(body)
        for thread in self._under_way:
            thread.join()

    def _draw(self, *, is_early: bool) -> str:
        """Return the next attack; each has its turn before any comes again."""
        if not self._deck:
            self._deck = [name for name in sorted(_ATTACKS) if name != _SCALER or is_early]
            self.random.shuffle(self._deck)
        return self._deck.pop()

    def _strike(self, *, is_early: bool) -> None:
        name = self._draw(is_early=is_early)
        attack, lasts = _ATTACKS[name], self.random.uniform(2.0, 12.0)

        def act() -> None:
            # Its target may be gone, or a call stalled by another attack: that is no fault.
            with suppress(Exception):
                if attack(self, lasts):
                    self.attacks[name] += 1

        # Some last: others strike meanwhile.
        thread = threading.Thread(target=act, name=name, daemon=True)
        self._under_way.append(thread)
        thread.start()

    def on_an_instance(self, attack: Callable[..., bool], *args: Any, **kwargs: Any) -> bool:
        """Attack one of the instances that run, if there is one."""
        running = self.plant.running
        return bool(running) and attack(self.random.choice(list(running)), *args, **kwargs)

    # The end.

    def recover(self) -> float:
        """Wait until all is done and nothing runs; return how long that took, in seconds."""
        began_at = time.monotonic()
        while time.monotonic() - began_at < _RECOVERY_SECONDS:
            if self._is_done():
                break
            pause(1.0)
        return time.monotonic() - began_at

    def _is_done(self) -> bool:
        if self.plant.left or not all(one.is_over for one in self._progress().values()):
            return False
        return is_quiet(self.session.status(WORKLOAD))

    def _progress(self) -> Mapping[str, JobProgress]:
        store = self.session.work_store(WORKLOAD)
        return {job_id: read_progress(job_id, store) for job_id in self.bodies}

    def judge(self, recovered_in: float) -> dict[str, Any]:
        """Return the figures, and what must not be."""
        progress = self._progress()
        market = self.plant.system.market
        ledger, bill = Ledger(self.session.table, WORKLOAD), market.bill()
        view = ledger.read()
        spend = sum_spend(view.spend.values())
        rows = {**ledger.read_ended(), **view.workers}
        money = compare(market, rows, spend.dollars)
        paid = RunRecord(
            dollars=sum(line.dollars for line in bill),
            price_per_hour=max((_price(line) for line in bill), default=0.0),
            useful_seconds=sum(one.busy_seconds for one in progress.values()),
            # Jobs come one by one to machines that are there.
            causes=self.attacks.total(),
            seconds_each=_FOR_NOTHING,
        )
        faults = [*self._lost_or_doubled(progress), *self._left(), *money.faults]
        if not is_bounded(paid):
            faults.append(f"nothing explains what it cost: {paid}")
        done = len(self.bodies) * ITEMS_PER_JOB
        return {
            "faults": faults,
            "jobs": len(self.bodies),
            "items": done,
            "recovered_in_seconds": round(recovered_in, 1),
            "instances": len(bill),
            "interruptions": sum(one.interruptions for one in progress.values()),
            "losses": sum(one.losses for one in progress.values()),
            "epochs": sum(one.epoch for one in progress.values()),
            "dollars_charged": round(spend.dollars, 6),
            "dollars_of_the_market": round(paid.dollars, 6),
            "dollars_at_most": round(most_dollars(paid), 6),
            "dollars_that_differ": {
                "prices that moved after the launch": money.moved_prices,
                "volumes and addresses": money.volumes_and_addresses,
                "seconds around launch and end": money.seconds_around_the_ends,
                "without a reason": money.unexplained,
            },
        }

    def _lost_or_doubled(self, progress: Mapping[str, JobProgress]) -> list[str]:
        store, found = self.session.work_store(WORKLOAD), []
        for job_id, body in self.bodies.items():
            if progress[job_id].state is not JobState.COMPLETED:
                found.append(f"{job_id} is {progress[job_id].state}: {progress[job_id].reason}")
                continue
            items = json.loads(body)["items"]
            records = list(read_records(job_id, store))
            if [one["item"] for one in records] != items:
                found.append(f"{job_id} has {len(records)} records of {len(items)} items")
            if [one["result"] for one in records] != [{"was": item} for item in items]:
                found.append(f"{job_id} has results of other items")
        return found

    def _left(self) -> list[str]:
        found = [f"{one.instance_id} is {one.state.value}" for one in self.plant.left]
        view = Ledger(self.session.table, WORKLOAD).read()
        found += [f"lease of {lease.job_id} by {lease.instance_id}" for lease in view.leases]
        found += [
            f"row of {w.instance_id} is {w.state}" for w in view.workers.values() if w.is_live
        ]
        backlog = self.session.queue(WORKLOAD).backlog()
        if not backlog.is_empty:
            found.append(f"messages are left: {backlog}")
        for instance in self.plant.system.market.instances():
            if self.plant.processes(instance.instance_id):
                found.append(f"processes of {instance.instance_id} are left")
        return found


def _price(line: Ec2Bill) -> float:
    """Return USD an hour that an instance was paid for."""
    return line.dollars * 3600.0 / line.paid_seconds if line.paid_seconds else 0.0


_ATTACKS: Mapping[str, Callable[[Siege, float], bool]] = {
    "kill a worker": lambda s, _: s.on_an_instance(s.plant.kill_worker),
    "kill a child": lambda s, _: s.on_an_instance(s.plant.kill_child),
    "stop a worker": lambda s, lasts: s.on_an_instance(s.plant.stop_for, lasts),
    "wedge a worker": lambda s, _: s.on_an_instance(s.plant.stop_for, 40.0),
    "reclaim with notice": lambda s, _: s.on_an_instance(s.plant.reclaim, notice=5.0),
    "reclaim at once": lambda s, _: s.on_an_instance(s.plant.reclaim, notice=0.0),
    _SCALER: lambda s, lasts: s.plant.kill_scaler_for(lasts / 2),
    "stall the emulator": lambda s, lasts: s.plant.stall_emulator_for(lasts / 3),
    "deliver twice": lambda s, _: s.plant.send_again(s.random.choice(list(s.bodies.values()))),
}
