"""The WordPiece tokenizer of uncased BERT models, in plain Python."""

import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

_LONGEST_WORD = 100  # longer words are unknown as a whole
_CJK = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F),
)  # fmt: skip


def _is_cjk(char: str) -> bool:
    code = ord(char)
    return any(first <= code <= last for first, last in _CJK)


def _is_punctuation(char: str) -> bool:
    # All of ASCII that is neither a letter, a digit nor a blank counts, "$" and "^" too.
    code = ord(char)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(char).startswith("P")


def split_words(text: str) -> list[str]:
    """Lower-cased words without accents; every punctuation mark and every CJK character is a word of its own."""
    pieces = []
    for char in text:
        if char in "\t\n\r" or unicodedata.category(char) == "Zs":
            pieces.append(" ")
        elif char in "\0\ufffd" or unicodedata.category(char) in ("Cc", "Cf", "Co"):
            continue
        elif _is_cjk(char):
            pieces.append(f" {char} ")
        else:
            pieces.append(char)
    folded = unicodedata.normalize("NFD", "".join(pieces).lower())
    spaced = []
    for char in folded:
        if unicodedata.category(char) == "Mn":
            continue
        spaced.append(f" {char} " if _is_punctuation(char) else char)
    return "".join(spaced).split()


class WordPiece:
    """Text to ids by a vocabulary file with one piece a line.

    `encode` gives `[CLS] ... [SEP]`, cut to `longest` ids. Special tokens spelled out in a text are plain text.
    """

    def __init__(self, vocabulary: str | Path, longest: int = 256):
        with open(vocabulary, encoding="utf-8") as file:
            self.ids = {line.rstrip("\n"): index for index, line in enumerate(file)}
        self.longest = longest
        self.unknown, self.first, self.last, self.padding = (
            self.ids[token] for token in ("[UNK]", "[CLS]", "[SEP]", "[PAD]")
        )

    def _pieces(self, word: str) -> Iterator[int]:
        """The longest known prefix, then the longest known continuations; one unknown id where one is missing."""
        ids, begin = [], 0
        while begin < len(word):
            prefix = "##" if begin else ""
            for end in range(len(word), begin, -1):
                found = self.ids.get(prefix + word[begin:end])
                if found is not None:
                    ids.append(found)
                    begin = end
                    break
            else:
                return iter((self.unknown,))
        return iter(ids)

    def encode(self, text: str) -> list[int]:
        ids = [self.first]
        for word in split_words(text):
            ids.extend(self._pieces(word) if len(word) <= _LONGEST_WORD else (self.unknown,))
        return [*ids[: self.longest - 1], self.last]

    def batch(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """ids int64 `[texts, longest text]`, padded, and the bool mask of the real ones."""
        rows = [self.encode(text) for text in texts]
        ids = np.full((len(rows), max(map(len, rows))), self.padding, np.int64)
        mask = np.zeros(ids.shape, bool)
        for row, tokens in enumerate(rows):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = True
        return ids, mask
