"""How fast GPUs are relative to a T4 by their datasheets, until a workload measures them.

Neither compute nor memory bandwidth alone predicts an unknown workload, so the prior is the
geometric mean of both, each relative to the T4. Worked: L4, sqrt(121/65 x 300/320) = 1.32.
llama-bench on EC2 measured 2.09 (prompt) and 1.26 (generation) for the same GPU: a prior is good
for a first guess and no more.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPrior:
    """Datasheet figures of one GPU."""

    #: Dense FP16 or BF16 tensor TFLOPS (headline figures with sparsity are twice as high).
    tflops: float
    #: Memory bandwidth, GB/s.
    bandwidth: float
    source: str


#: EC2's name of the GPU -> figures.
GPU_PRIORS = {
    "M60": GpuPrior(tflops=9.6, bandwidth=160, source="NVIDIA Tesla M60 datasheet, FP32, one GPU"),
    "T4": GpuPrior(tflops=65, bandwidth=320, source="NVIDIA T4 datasheet"),
    "T4g": GpuPrior(tflops=65, bandwidth=320, source="as T4, on the arm64 host of g5g"),
    "V100": GpuPrior(tflops=125, bandwidth=900, source="NVIDIA V100 SXM2 datasheet"),
    "A10G": GpuPrior(tflops=125, bandwidth=600, source="NVIDIA A10 datasheet; A10G has none"),
    "L4": GpuPrior(tflops=121, bandwidth=300, source="NVIDIA L4 datasheet"),
    "L40S": GpuPrior(tflops=362, bandwidth=864, source="NVIDIA L40S datasheet"),
    "A100": GpuPrior(tflops=312, bandwidth=1555, source="NVIDIA A100 40GB SXM datasheet"),
    "H100": GpuPrior(tflops=989, bandwidth=3350, source="NVIDIA H100 SXM datasheet"),
    "H200": GpuPrior(tflops=989, bandwidth=4800, source="NVIDIA H200 datasheet"),
    "B200": GpuPrior(tflops=2250, bandwidth=8000, source="NVIDIA Blackwell datasheet"),
    "B300": GpuPrior(tflops=2250, bandwidth=8000, source="as B200; B300's is not verified"),
    "RTX PRO Server 6000": GpuPrior(
        tflops=500, bandwidth=1597, source="NVIDIA RTX PRO 6000 page, 4 PF sparse FP4 / 8"
    ),
    "RTX PRO 4500": GpuPrior(tflops=200, bandwidth=800, source="estimated; not verified"),
    "Radeon Pro V520": GpuPrior(
        tflops=14.7, bandwidth=512, source="AMD V520 page, FP16 without tensor cores"
    ),
}

#: A GPU that the table does not know is taken for a T4: launching it once measures it.
UNKNOWN_GPU = GPU_PRIORS["T4"]

#: One vCPU against one T4, for a type without any GPU; a guess of the order of magnitude.
VCPU_SHARE = 0.02
#: vCPUs of an instance without a GPU whose type is not at hand: those of most "xlarge".
USUAL_VCPUS = 4


def relative_throughput(gpu_name: str, gpu_count: float, *, vcpus: int = USUAL_VCPUS) -> float:
    """Return the prior throughput of a whole instance, one T4 = 1; always above 0.

    Args:
        gpu_name: EC2's name; "" without GPU.
        gpu_count: whole GPUs, or a fraction of one; 0 (no GPU, or a partitioned type whose
            EC2 ``Count`` nobody corrected) counts the vCPUs instead.
        vcpus: used only without GPU.
    """
    if gpu_count <= 0.0 or not gpu_name:
        return VCPU_SHARE * max(1, vcpus)
    one = GPU_PRIORS.get(gpu_name, UNKNOWN_GPU)
    t4 = GPU_PRIORS["T4"]
    return gpu_count * math.sqrt(one.tflops / t4.tflops * one.bandwidth / t4.bandwidth)
