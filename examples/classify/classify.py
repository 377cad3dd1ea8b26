"""Tell what kind of file each item is, with the neural model that ships inside Magika.

An item is the path of a file, or the ``s3://`` address of an object. Magika runs its model on
ONNX Runtime; with the GPU build of that (package ``onnxruntime-gpu``) it runs on the GPU.
"""

from collections.abc import Sequence
from pathlib import Path

import onnxruntime
from magika import Magika, MagikaResult

from spindown.user import Context, Item, Result


class _Classifier(Magika):  # type: ignore[misc]  # published without types
    """Magika on whatever this machine has to compute with."""

    def _init_onnx_session(self) -> onnxruntime.InferenceSession:
        options = onnxruntime.SessionOptions()
        # Threads that spin while they wait take the processor from other slots.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        available = onnxruntime.get_available_providers()
        wanted = ("CUDAExecutionProvider", "CPUExecutionProvider")
        providers = [name for name in wanted if name in available]
        return onnxruntime.InferenceSession(self._model_path, options, providers=providers)


_models: list[_Classifier] = []


def setup(ctx: Context) -> None:
    """Load the model once for each process."""
    _models.append(_Classifier())


def run(batch: Sequence[Item], ctx: Context) -> list[Result]:
    """Classify a batch of files."""
    paths = [item.path or Path(str(item.value)) for item in batch]
    found = _models[0].identify_paths(paths)
    return [_result(item, answer) for item, answer in zip(batch, found, strict=True)]


def _result(item: Item, answer: MagikaResult) -> Result:
    if not answer.ok:
        return Result(item, error=f"{item.value}: {answer.status.value.replace('_', ' ')}")
    kind = answer.output
    value = {"label": kind.label, "mime_type": kind.mime_type, "score": answer.score}
    return Result(item, value)
