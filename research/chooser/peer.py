"""What gpuhunt and SkyPilot would take, asked in their own environment: JSON in, JSON out.

Run by ``research.chooser`` with the Python of an environment in which they are installed; knows
nothing of Spindown. Both are given the catalogue of the question and no network: gpuhunt its list
of items, SkyPilot its own CSV file in a home directory of its own.

stdin: {"offers": [{type, gpu, vendor, count, vram_gib, vcpus, memory_gib, region, zone, spot,
price}], "questions": [{"region", "gpus", "vram_gib", "hours"}]}, where ``gpus`` may be taken,
``hours`` is what each GPU needs for the work, and None stands for "not told".
stdout: {peer: {"version", "choices": [type/zone/spot or None], "milliseconds": [...]}} or
{peer: {"error": why}}.
"""

import csv
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

Offer = Mapping[str, Any]
Question = Mapping[str, Any]
_COLUMNS = [
    *("InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "GpuInfo"),
    *("Price", "SpotPrice", "Region", "AvailabilityZone", "Arch"),
]


def main() -> None:
    """Answer one document."""
    asked = json.load(sys.stdin)
    told: dict[str, Any] = {}
    # Both talk on stdout at times.
    with redirect_stdout(sys.stderr):
        for name, prepare in (("gpuhunt", gpuhunt), ("skypilot", skypilot)):
            try:
                version, choose = prepare(asked["offers"])
                told[name] = {"version": version, **_answer(choose, asked["questions"])}
            except Exception as exc:  # noqa: BLE001 - whatever it is, the report says it
                told[name] = {"error": f"{type(exc).__name__}: {exc}"}
    json.dump(told, sys.stdout)


def _answer(choose: Callable[[Question], str | None], questions: Sequence[Question]) -> Any:
    if questions:
        choose(questions[0])
    choices, spent = [], []
    for question in questions:
        start = time.perf_counter()
        choices.append(choose(question))
        spent.append((time.perf_counter() - start) * 1000.0)
    return {"choices": choices, "milliseconds": spent}


def gpuhunt(offers: Sequence[Offer]) -> tuple[str, Callable[[Question], str | None]]:
    """Return gpuhunt's version and its query: the cheapest by the hour of what fits."""
    from gpuhunt import Catalog, CatalogItem, version  # type: ignore[import-not-found]  # noqa: PLC0415 - not ours
    from gpuhunt._internal.catalog import ProviderCatalog  # type: ignore[import-not-found]  # noqa: PLC0415 - not ours

    cheapest_first = sorted(offers, key=lambda offer: offer["price"])
    items = [
        CatalogItem(
            provider="aws",
            instance_name=offer["type"],
            location=offer["zone"],
            price=offer["price"],
            cpu=offer["vcpus"],
            memory=offer["memory_gib"],
            gpu_count=offer["count"],
            gpu_name=offer["gpu"],
            gpu_memory=offer["vram_gib"],
            gpu_vendor=offer["vendor"],
            spot=offer["spot"],
            disk_size=100,
        )
        # As its own files are: the query merges lists that are in order already.
        for offer in cheapest_first
    ]
    by_region: dict[str, Any] = {}
    for region in {"", *(offer["region"] for offer in offers)}:
        # Its query knows no region; dstack filters the answer, so each gets a catalogue here.
        catalog = Catalog(balance_resources=False, auto_reload=False)
        own = [i for i, o in zip(items, cheapest_first, strict=True) if region in {"", o["region"]}]
        catalog.loaded_at = time.monotonic()
        catalog.catalog["aws"] = ProviderCatalog(version="bench", items=own)
        by_region[region] = catalog

    def choose(question: Question) -> str | None:
        found = by_region[question["region"]].query(
            provider="aws",
            gpu_name=sorted(question["gpus"]),
            min_gpu_count=1,
            max_gpu_count=1,
            min_gpu_memory=question["vram_gib"],
        )
        if not found:
            return None
        sold_as = "spot" if found[0].spot else "on-demand"
        return f"{found[0].instance_name}/{found[0].location}/{sold_as}"

    return str(version.__version__), choose


def skypilot(offers: Sequence[Offer]) -> tuple[str, Callable[[Question], str | None]]:
    """Return SkyPilot's version and its optimizer: the least price x hours of what fits."""
    os.environ["HOME"] = tempfile.mkdtemp(prefix="sky-home-")
    os.environ["SKYPILOT_DISABLE_USAGE_COLLECTION"] = "1"
    _write_catalogue(offers)
    import sky  # type: ignore[import-not-found]  # noqa: PLC0415 - not ours
    from sky import check, optimizer  # noqa: PLC0415 - not ours
    from sky.catalog import aws_catalog  # type: ignore[import-not-found]  # noqa: PLC0415 - not ours
    from sky.clouds import AWS  # type: ignore[import-not-found]  # noqa: PLC0415 - not ours

    # Its tests enable clouds the same way; without it an account is asked.
    check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: [AWS()]
    aws_catalog._user_df = aws_catalog._default_df._load_df()

    def choose(question: Question) -> str | None:
        place = f"aws/{question['region']}".rstrip("/")
        with sky.Dag() as dag:
            task = sky.Task(run="true")
            task.set_resources(
                {
                    sky.Resources(infra=place, accelerators=f"{gpu}:1", use_spot=True)
                    for gpu in question["gpus"]
                }
            )
            hours: Mapping[str, float] | None = question["hours"]
            task.set_time_estimator(
                lambda resources: 3600 * (hours or {}).get(next(iter(resources.accelerators)), 1.0)
            )
        best = optimizer.Optimizer.optimize(dag, quiet=True).tasks[0].best_resources
        return f"{best.instance_type}/{_cheapest_zone(offers, best)}/spot"

    return str(sky.__version__), choose


def _cheapest_zone(offers: Sequence[Offer], best: Any) -> str:
    """Return the zone that its provisioner would ask first: the one of the least spot price."""
    found = [
        o
        for o in offers
        if o["spot"] and o["type"] == best.instance_type and o["region"] == best.region
    ]
    return str(min(found, key=lambda o: o["price"])["zone"])


def _write_catalogue(offers: Sequence[Offer]) -> None:
    catalogs = Path(os.environ["HOME"], ".sky", "catalogs", "v8")
    gpus = sorted({(offer["gpu"], "AWS") for offer in offers})
    _write(catalogs / "common" / "accelerators.csv", ["AcceleratorName", "Clouds"], gpus)
    _write(catalogs / "aws" / "vms.csv", _COLUMNS, _rows(offers))


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def _rows(offers: Sequence[Offer]) -> Iterator[list[Any]]:
    pools: dict[tuple[str, str], dict[bool, Offer]] = {}
    for offer in offers:
        pools.setdefault((offer["type"], offer["zone"]), {})[offer["spot"]] = offer
    for (name, zone), sold in pools.items():
        one = next(iter(sold.values()))
        gpu = {"Gpus": [{"Name": one["gpu"], "Manufacturer": one["vendor"], "Count": one["count"]}]}
        spot, listed = sold.get(True), sold.get(False)
        yield [
            name,
            one["gpu"],
            float(one["count"]),
            float(one["vcpus"]),
            float(one["memory_gib"]),
            str(gpu),
            listed["price"] if listed else "",
            spot["price"] if spot else "",
            one["region"],
            zone,
            "x86_64",
        ]


if __name__ == "__main__":
    main()
