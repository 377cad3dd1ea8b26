"""How fast machines are relative to a T4, until a workload measures them.

GPUs by their datasheets, and machines without one by a benchmark of their vCPUs.

Neither compute nor memory bandwidth alone predicts an unknown workload, so the prior is the
geometric mean of both, each relative to the T4. Worked: L4, sqrt(121/65 x 300/320) = 1.32.
llama-bench on EC2 measured 2.09 (prompt) and 1.26 (generation) for the same GPU: a prior is good
for a first guess and no more. What it makes an item cost is in ``learning.throughput`` and
``ranking.candidate_list``.
"""

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from spindown.domain.offer import VCPU, InstanceType


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDatasheet:
    """Datasheet figures of one GPU."""

    #: Dense FP16 or BF16 tensor TFLOPS (headline figures with sparsity are twice as high).
    tflops: float
    #: Memory bandwidth, GB/s.
    bandwidth: float
    source: str


#: EC2's name of the GPU -> figures.
GPU_DATASHEETS = {
    "M60": GpuDatasheet(
        tflops=9.6, bandwidth=160, source="NVIDIA Tesla M60 datasheet, FP32, one GPU"
    ),
    "T4": GpuDatasheet(tflops=65, bandwidth=320, source="NVIDIA T4 datasheet"),
    "T4g": GpuDatasheet(tflops=65, bandwidth=320, source="as T4, on the arm64 host of g5g"),
    "V100": GpuDatasheet(tflops=125, bandwidth=900, source="NVIDIA V100 SXM2 datasheet"),
    "A10G": GpuDatasheet(tflops=125, bandwidth=600, source="NVIDIA A10 datasheet; A10G has none"),
    "L4": GpuDatasheet(tflops=121, bandwidth=300, source="NVIDIA L4 datasheet"),
    "L40S": GpuDatasheet(tflops=362, bandwidth=864, source="NVIDIA L40S datasheet"),
    "A100": GpuDatasheet(tflops=312, bandwidth=1555, source="NVIDIA A100 40GB SXM datasheet"),
    "H100": GpuDatasheet(tflops=989, bandwidth=3350, source="NVIDIA H100 SXM datasheet"),
    "H200": GpuDatasheet(tflops=989, bandwidth=4800, source="NVIDIA H200 datasheet"),
    "B200": GpuDatasheet(tflops=2250, bandwidth=8000, source="NVIDIA Blackwell datasheet"),
    "B300": GpuDatasheet(tflops=2250, bandwidth=8000, source="as B200; B300's is not verified"),
    "RTX PRO Server 6000": GpuDatasheet(
        tflops=500, bandwidth=1597, source="NVIDIA RTX PRO 6000 page, 4 PF sparse FP4 / 8"
    ),
    "RTX PRO 4500": GpuDatasheet(tflops=200, bandwidth=800, source="estimated; not verified"),
    "Radeon Pro V520": GpuDatasheet(
        tflops=14.7, bandwidth=512, source="AMD V520 page, FP16 without tensor cores"
    ),
}

#: EC2's names of all that it has: GPUs, and accelerators of other makers.
GPU_NAMES = frozenset(GPU_DATASHEETS) | {
    *("Gaudi HL-205", "Inferentia", "Inferentia2", "K80", "Qualcomm AI100"),
    *("Trainium", "Trainium2", "Trainium3", "U30"),
}

#: A GPU that the table does not know is taken for a T4: launching it once measures it.
UNKNOWN_GPU = GPU_DATASHEETS["T4"]


class EstimateSource(StrEnum):
    """Where the prior of an instance type comes from."""

    #: The datasheet of its GPU.
    DATASHEET = "datasheet"
    #: A benchmark of a type of its own family.
    BENCHMARK = "benchmark"
    #: A benchmark of another family with processors of the same kind and generation.
    ESTIMATED = "estimated"
    #: Nothing is known: it is taken for the slowest usual kind.
    NONE = "none"


#: Family -> Geekbench 6 multi-core score of its 2xlarge, which has 8 vCPUs. Read from Spare Cores'
#: raw data, github.com/SpareCores/sc-inspector-data, ``data/aws/{type}/geekbench/results.json``, in
#: November 2026. It mixes sixteen tasks (compression, compiling, images, rendering). A vCPU is a
#: whole core where the score is high for its year (Graviton, and AMD from the 7th generation on),
#: and half a core elsewhere. m7i has 7729 and m7g 8152, within half a percent of c7i and c7g: what
#: counts is the processor, so that one family of each is enough.
CPU_SCORES = {
    "i3": 3348,
    "m5a": 2960,
    "c5": 4531,
    "c5a": 5187,
    "c6a": 6393,
    "c6g": 5457,
    "c6i": 6011,
    "c7a": 10286,
    "c7g": 8143,
    "c7i": 7695,
    "r7iz": 8490,
    "c8a": 14139,
    "c8g": 10048,
    "c8i": 8547,
    "c9g": 12922,
}
#: Families whose generation is not that of their processors -> a family with the same processors
#: (AWS, "Amazon EC2 instance types", product details).
_SAME_PROCESSOR = {
    "i3en": "c5",
    "i4g": "c6g",
    "i4i": "c6i",
    "im4gn": "c6g",
    "is4gen": "c6g",
    "m5ad": "m5a",
    "r5a": "m5a",
    "r5ad": "m5a",
    "x1": "i3",
    "x1e": "i3",
    "x2gd": "c6g",
    "x2idn": "c6i",
    "x2iedn": "c6i",
    "x2iezn": "c5",
}
#: The family whose vCPU is 1.
_REFERENCE = "c5"
_FAMILY = re.compile(r"(?P<letters>[a-z]+)(?P<generation>\d+)(?P<maker>[aig]?)")

#: One vCPU of c5 against one T4; a guess of the order of magnitude.
VCPU_SHARE = 0.02
#: vCPUs of an instance without a GPU whose type is not at hand: those of most "xlarge".
USUAL_VCPUS = 4


@lru_cache(maxsize=1024)
def vcpu_score(family: str) -> tuple[float, EstimateSource]:
    """Return how fast one vCPU of a family is, c5's being 1, and where that comes from.

    A family without a figure gets that of c with the same generation and maker: r8gd that of c8g.
    A generation without a figure gets the last before it of the same maker.
    """
    same = CPU_SCORES.get(_SAME_PROCESSOR.get(family, family))
    if same is not None:
        source = EstimateSource.BENCHMARK if family in CPU_SCORES else EstimateSource.ESTIMATED
        return same / CPU_SCORES[_REFERENCE], source
    matched = _FAMILY.match(family)
    if matched is None:
        return 1.0, EstimateSource.NONE
    maker = matched["maker"]
    # Intel's letter is not written before the 6th generation.
    wanted = {maker, ""} if maker in {"i", ""} else {maker}
    alike = {
        int(one["generation"]): CPU_SCORES[name]
        for name in CPU_SCORES
        if (one := _FAMILY.fullmatch(name)) and one["letters"] == "c" and one["maker"] in wanted
    }
    older = [generation for generation in alike if generation <= int(matched["generation"])]
    if not older:
        return 1.0, EstimateSource.NONE
    return alike[max(older)] / CPU_SCORES[_REFERENCE], EstimateSource.ESTIMATED


def reference_machine(*, without_gpu: bool) -> str:
    """Return that against which speeds and sizes of work are told: where a speed is 1."""
    return f"{1 / VCPU_SHARE:.0f} vCPUs of {_REFERENCE}" if without_gpu else "a T4"


def estimate_source(instance_type: InstanceType) -> EstimateSource:
    """Return where the prior of a type comes from."""
    if instance_type.is_without_gpu:
        return vcpu_score(instance_type.family)[1]
    is_known = instance_type.gpu_name in GPU_DATASHEETS
    return EstimateSource.DATASHEET if is_known else EstimateSource.NONE


@lru_cache(maxsize=4096)
def relative_throughput(name: str, count: float, *, vcpus: int = USUAL_VCPUS) -> float:
    """Return the prior throughput of a whole instance, one T4 = 1; always above 0.

    Worked, c7i.2xlarge: 8 vCPUs x 0.02 x 7695 / 4531 = 0.272.

    Args:
        name: what computes in it: EC2's name of the GPU, or the family for a machine without.
        count: whole GPUs, or a fraction of one; vCPUs without a GPU. 0 (a partitioned type whose
            EC2 ``Count`` nobody corrected, or a worker of which no offer tells) counts ``vcpus``.
        vcpus: used only then.
    """
    if name.endswith(VCPU):
        score, _ = vcpu_score(name.removesuffix(VCPU))
        return VCPU_SHARE * score * (count if count > 0.0 else max(1, vcpus))
    if count <= 0.0 or not name:
        return VCPU_SHARE * max(1, vcpus)
    one = GPU_DATASHEETS.get(name, UNKNOWN_GPU)
    t4 = GPU_DATASHEETS["T4"]
    return count * math.sqrt(one.tflops / t4.tflops * one.bandwidth / t4.bandwidth)
