"""What the demo feeds its networks: sentences, and pictures drawn from integers so that every machine sees the same."""

import numpy as np

SENTENCES = (
    "A man is playing the guitar on a stage.",
    "Someone performs a song with an acoustic guitar.",
    "The stock market fell sharply after the announcement.",
    "Shares dropped when the news came out.",
    "How do I reset my password?",
    "I forgot my login details and cannot sign in!",
    "Photosynthesis turns sunlight into chemical energy.",
    "Le café à côté sert de très bons croissants.",
    "Two kittens are sleeping on the sofa; one is snoring (quietly).",
    "The cat naps on the couch.",
    "Matrix multiplication dominates the cost of running a transformer.",
    "東京 is the capital of Japan, naïve or not: $5 + 3 = 8?",
)

# Others, for what a quantized network has to know of its inputs.
SAMPLES = (
    "The weather was cold and the streets were empty.",
    "She bought two tickets for the evening show.",
    "Python lists can be sorted with a key function.",
    "The committee will publish its report next week.",
    "Please send the invoice to our office in Berlin.",
    "He cooked dinner while the children did their homework.",
    "Vaccines train the immune system to recognise a virus.",
    "Where can I find a cheap hotel near the station?",
)

PAIRS = ((0, 1), (2, 3), (4, 5), (8, 9), (0, 10), (2, 6), (7, 11), (6, 10), (1, 9), (3, 4))


def _noise(count: int, seed: int) -> np.ndarray:
    """Integers 0..255 from a linear congruential generator."""
    values = np.empty(count, np.uint8)
    state = seed
    for i in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        values[i] = state >> 16 & 255
    return values


def picture(height: int, width: int, seed: int) -> np.ndarray:
    """A drawn face, uint8 `[height, width, 3]`: ellipses on noise, in a place that depends on the seed."""
    image = (_noise(height * width * 3, seed) // 4 + 40).reshape(height, width, 3)
    rows, columns = np.mgrid[0:height, 0:width]
    shift = seed % 5 - 2

    def ellipse(row: int, column: int, tall: int, wide: int, colour: tuple[int, int, int]) -> None:
        # In 32nds of the picture; integer arithmetic only.
        dy = (rows * 32 - (row + shift) * height) * wide * width
        dx = (columns * 32 - (column - shift) * width) * tall * height
        image[dy * dy + dx * dx <= (tall * height * wide * width) ** 2] = colour

    ellipse(9, 16, 8, 11, (60, 40, 25))
    ellipse(17, 16, 12, 9, (205, 160, 130))
    for side in (-4, 4):
        ellipse(14, 16 + side, 1, 2, (240, 240, 240))
        ellipse(14, 16 + side, 1, 1, (40, 30, 30))
        ellipse(12, 16 + side, 1, 3, (70, 45, 30))
    ellipse(18, 16, 3, 1, (180, 130, 105))
    ellipse(23, 16, 1, 4, (150, 50, 50))
    return image


def picture_tensor(count: int, height: int, width: int, seed: int) -> np.ndarray:
    """`count` pictures as the nets take them: float32 `[count, height, width, 3]` in -1..1, every value exact."""
    images = np.stack([picture(height, width, seed + i) for i in range(count)])
    return (images.astype(np.float32) - np.float32(127.5)) * np.float32(0.0078125)


def net_inputs() -> dict[str, np.ndarray]:
    """One batch for each of the three face-detection nets."""
    return {
        "P-Net": picture_tensor(1, 60, 53, seed=3),
        "R-Net": picture_tensor(16, 24, 24, seed=11),
        "O-Net": picture_tensor(8, 48, 48, seed=31),
    }
