"""Stores what the packages' own implementations give for the demo's inputs, for machines without PyTorch.

    python -m venv /tmp/reference
    /tmp/reference/bin/pip install torch torchvision pillow requests tqdm sentence-transformers
    /tmp/reference/bin/pip install --no-deps -r python/requirements-demo.txt
    /tmp/reference/bin/python python/examples/make_expectations.py

Writes encoder.json and mtcnn.json to python/examples/expectations. Run it after changing realmodels/inputs.py.
"""

from realmodels import inputs, reference


def main() -> None:
    for path in reference.store(inputs.SENTENCES, inputs.net_inputs()):
        print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
