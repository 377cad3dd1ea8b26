"""Turn texts into vectors with a model of Hugging Face on PyTorch, on a GPU if there is one.

An item is a text, or the ``s3://`` address of a UTF-8 file. The job's parameter ``tokens``
cuts longer texts (512 by default). The vectors of a batch are computed together, so `batch_size`
decides how much of the GPU is used. Each result is the vector, of length 1, and its model.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from spindown.user import Context, Item, Result

#: A name on Hugging Face's hub, or a folder with the model's files, such as one of `models`.
MODEL = os.environ.get("EMBED_MODEL", "BAAI/bge-small-en-v1.5")
#: The longest text that is read from a file, bytes: a model sees its first few hundred words.
_TEXT_BYTES = 1 << 20


class Encoder(Protocol):
    """Turns texts into vectors, all at once."""

    def encode(self, texts: Sequence[str], *, tokens: int) -> Sequence[Sequence[float]]:
        """Return one vector of length 1 for each text, in order."""


@dataclass(frozen=True)
class TorchEncoder:
    """A model of the `transformers` library, which imports PyTorch when it is loaded."""

    torch: Any
    tokenizer: Any
    model: Any
    device: str

    @staticmethod
    def load(name: str) -> "TorchEncoder":
        """Load a model onto the slot's GPU, in half precision, or onto the CPU."""
        import torch  # noqa: PLC0415 - heavy, and not installed where only the rest is tested
        import transformers  # noqa: PLC0415 - likewise

        device = "cuda" if torch.cuda.is_available() else "cpu"
        kind = torch.float16 if device == "cuda" else torch.float32
        model = transformers.AutoModel.from_pretrained(name, torch_dtype=kind).to(device).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        return TorchEncoder(torch, tokenizer, model, device)

    def encode(self, texts: Sequence[str], *, tokens: int) -> Sequence[Sequence[float]]:
        """Return the normalised vector of each text's first token, as BGE models ask for."""
        given = self.tokenizer(
            list(texts), padding=True, truncation=True, max_length=tokens, return_tensors="pt"
        ).to(self.device)
        with self.torch.inference_mode():
            first = self.model(**given).last_hidden_state[:, 0].float()
        vectors: list[list[float]] = self.torch.nn.functional.normalize(first, dim=1).tolist()
        return vectors


_encoders: list[Encoder] = []


def setup(ctx: Context) -> None:
    """Load the model once in each process, before the first batch."""
    _encoders.append(TorchEncoder.load(MODEL))


def run(batch: Sequence[Item], ctx: Context) -> Iterator[Result]:
    """Embed a batch; an item that cannot be read fails alone."""
    yield from embed(batch, _encoders[0], ctx.params)


def embed(batch: Sequence[Item], encoder: Encoder, params: Mapping[str, Any]) -> Iterator[Result]:
    """Yield the vector of each item, or why it has none."""
    texts: dict[int, str] = {}
    for place, item in enumerate(batch):
        try:
            texts[place] = read_text(item)
        except (OSError, ValueError) as exc:
            yield Result(item, error=f"{type(exc).__name__}: {exc}")
    vectors = encoder.encode(list(texts.values()), tokens=int(params.get("tokens", 512)))
    for place, vector in zip(texts, vectors, strict=True):
        value = {"model": MODEL, "vector": [round(number, 6) for number in vector]}
        yield Result(batch[place], value)


def read_text(item: Item) -> str:
    """Return the text of an item (ValueError: there is none)."""
    if item.path is None:
        text = item.value
    else:
        with item.path.open("rb") as file:
            text = file.read(_TEXT_BYTES).decode("utf-8", errors="replace")
    if not isinstance(text, str) or not text.strip():
        raise ValueError("an item is a text that is not empty, or a file of one")
    return text
