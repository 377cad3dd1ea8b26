"""Compare what is taken from one catalogue, and what an item then costs at the measured speed.

    python -m research.chooser --data DIR [--peers PYTHON]

DIR holds the files of ``research.chooser.source``; PYTHON is that of an environment in which
gpuhunt and skypilot are installed (``uv pip install gpuhunt skypilot``). Without it they are left
out and the page says so. Writes docs/bench/chooser.json.

An item is what a T4 does in 3.6 s. Its true cost is the whole price by the measured speed:
starting, idling and interruptions are in no chooser's answer, so they are left out for all.
"""

import argparse
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean, median
from time import perf_counter
from typing import Any

from research.chooser.source import Workload, read_offers, read_workloads
from spindown.domain.learning import Knowledge, ThroughputRecord
from spindown.domain.offer import CapacityType, Offer, Requirements
from spindown.domain.policy import RankBy
from spindown.domain.ranking import rank
from tests.bench.record import record
from tests.builders import NOW, a_demand, a_policy, minutes

PEER = Path(__file__).with_name("peer.py")
#: What a T4 does in an hour: the default of ``throughput_estimate``.
T4_ITEMS_PER_HOUR = 1000.0
#: Four hours of a T4 in forty jobs, to be done in one.
DEMAND = a_demand(need_items_per_hour=4000.0, backlog_items=4000.0, jobs=40, items_per_job=100.0)
_NOTES = (
    "gpuhunt's query and SkyPilot's optimizer take the cheapest GPU of the user's list by the hour",
    "SkyPilot told every speed: the user's own function knows all measured speeds beforehand",
    "spindown, settled: after one job on each kind that it took; the time is that of all rounds",
    "SkyPilot's time holds all it does for one job, over several clouds, which is not asked here",
)
#: Rounds of learning; a choice repeats long before.
ROUNDS = 12


@dataclass(frozen=True, slots=True)
class Question:
    """What to run, and where; region "" is anywhere."""

    workload: Workload
    region: str
    offers: tuple[Offer, ...]

    def items_per_hour(self, offer: Offer) -> float:
        """Return the measured speed, a T4's being that of ``throughput_estimate``."""
        speed = self.workload.speed
        return T4_ITEMS_PER_HOUR * speed[offer.instance_type.name] / speed["g4dn.xlarge"]

    def cost_per_item(self, offer: Offer) -> float:
        """Return USD an item."""
        return offer.price / self.items_per_hour(offer)

    @property
    def fitting(self) -> tuple[Offer, ...]:
        """Return the offers that the model fits on."""
        least = self.workload.vram_gib * 1024
        return tuple(o for o in self.offers if o.instance_type.gpu_memory_mib >= least)


def main() -> None:
    """Ask everybody, price the answers, write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--peers", type=Path, help="a Python with gpuhunt and skypilot")
    asked = parser.parse_args()
    offers = read_offers(asked.data)
    questions = list(_questions(offers, read_workloads(asked.data, offers)))
    told = {
        "spindown, nothing measured": _ask(questions, lambda q: _choose(q, Knowledge())),
        "spindown, settled": _ask(questions, _settle),
        "spindown, rank_by price": _ask(questions, lambda q: _choose(q, Knowledge(), RankBy.PRICE)),
        **(_ask_peers(asked.peers, questions) if asked.peers else {}),
    }
    figures: dict[str, Any] = {
        "offers": len(offers),
        "regions": len({o.region for o in offers}),
        "workloads": len({(q.workload.model, q.workload.metric) for q in questions}),
        "questions": len(questions),
        **{name: _judge(questions, answer) for name, answer in told.items()},
    }
    figures["notes"] = list(_NOTES) if asked.peers else ["peers not asked: no --peers"]
    record("chooser", figures)


def _questions(offers: tuple[Offer, ...], workloads: Sequence[Workload]) -> Iterator[Question]:
    regions = sorted({offer.region for offer in offers})
    for workload in workloads:
        for region in ("", *regions):
            own = tuple(o for o in offers if region in {"", o.region})
            if len({o.instance_type.gpu_name for o in own if o.capacity_type == "spot"}) > 1:
                yield Question(workload, region, own)


def _ask(questions: Sequence[Question], choose: Callable[[Question], Offer]) -> dict[str, Any]:
    choices, spent = [], []
    for question in questions:
        start = perf_counter()
        choices.append(choose(question))
        spent.append((perf_counter() - start) * 1000.0)
    return {"choices": choices, "milliseconds": spent}


def _choose(
    question: Question, knowledge: Knowledge, rank_by: RankBy = RankBy.COST_PER_ITEM
) -> Offer:
    best = rank(
        question.offers,
        demand=DEMAND,
        knowledge=knowledge,
        policy=a_policy(rank_by=rank_by),
        requirements=Requirements(gpu_memory_mib_min=question.workload.vram_gib * 1024),
        waited=minutes(0),
        now=NOW,
    ).best
    assert best is not None
    return best.offer


def _settle(question: Question) -> Offer:
    """Choose, run a job there, learn its speed, and so on until the choice stays."""
    known: dict[tuple[str, float], ThroughputRecord] = {}
    choice = _choose(question, Knowledge())
    for _ in range(ROUNDS):
        kind = (choice.instance_type.gpu_name, 1.0)
        if kind in known:
            break
        speed = question.items_per_hour(choice)
        known[kind] = ThroughputRecord(items=100.0, hours=100.0 / speed, reports=1)
        choice = _choose(question, Knowledge(throughput=known))
    return choice


def _ask_peers(python: Path, questions: Sequence[Question]) -> dict[str, Any]:
    """Ask gpuhunt, and SkyPilot twice: as it is, and told how long each GPU takes."""
    offers = questions[0].offers
    document = {
        "offers": [_spell(offer) for offer in offers],
        "questions": [_ask_for(q, is_told=is_told) for is_told in (False, True) for q in questions],
    }
    done = subprocess.run(
        [str(python), str(PEER)],
        input=json.dumps(document),
        capture_output=True,
        check=True,
        text=True,
    )
    named = {str(offer): offer for offer in offers}
    told: dict[str, Any] = {}
    for peer, answer in json.loads(done.stdout).items():
        if "error" in answer:
            told[peer] = answer
            continue
        title = f"{peer} {answer['version']}"
        parts = {title: slice(len(questions))}
        if peer != "gpuhunt":
            # Its query takes no speeds.
            parts[f"{title}, told every speed"] = slice(len(questions), None)
        for name, part in parts.items():
            told[name] = {
                "choices": [named[c] for c in answer["choices"][part]],
                "milliseconds": answer["milliseconds"][part],
            }
    return told


def _ask_for(question: Question, *, is_told: bool) -> dict[str, Any]:
    hours: dict[str, float] = {}
    for offer in question.fitting:
        gpu = _peer_name(offer.instance_type.gpu_name)
        took = DEMAND.backlog_items / question.items_per_hour(offer)
        hours[gpu] = min(took, hours.get(gpu, took))
    return {
        "region": question.region,
        "gpus": sorted(hours),
        "vram_gib": question.workload.vram_gib,
        "hours": hours if is_told else None,
    }


def _spell(offer: Offer) -> dict[str, Any]:
    kind = offer.instance_type
    return {
        "type": kind.name,
        "gpu": _peer_name(kind.gpu_name),
        "vendor": "nvidia",
        "count": 1,
        "vram_gib": kind.gpu_memory_mib / 1024,
        "vcpus": kind.vcpus,
        "memory_gib": kind.memory_mib / 1024,
        "region": offer.region,
        "zone": offer.zone,
        "spot": offer.capacity_type is CapacityType.SPOT,
        # The same whole price for all.
        "price": offer.price,
    }


def _peer_name(gpu: str) -> str:
    return gpu.replace(" ", "")


def _judge(questions: Sequence[Question], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Price what was taken: over the best there was, and in dollars, by place."""
    if "error" in answer:
        return dict(answer)
    over = [
        question.cost_per_item(choice) / min(map(question.cost_per_item, question.fitting))
        for question, choice in zip(questions, answer["choices"], strict=True)
    ]
    costs = [q.cost_per_item(c) for q, c in zip(questions, answer["choices"], strict=True)]
    anywhere = [n for n, question in enumerate(questions) if not question.region]
    spent = answer["milliseconds"]
    return {
        "usd_per_1000_items": round(1000 * geometric_mean(costs), 5),
        "over_the_best": round(geometric_mean(over), 3),
        "worst_over_the_best": round(max(over), 2),
        "best_taken_share": round(sum(x < 1.0005 for x in over) / len(over), 3),
        "p50_ms_one_region": round(
            median(ms for n, ms in enumerate(spent) if n not in set(anywhere)), 3
        ),
        "p50_ms_all_regions": round(median(spent[n] for n in anywhere), 3),
    }


if __name__ == "__main__":
    main()
