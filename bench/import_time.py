"""What `import clika_runtime` adds to NumPy's own import, each time in a process of its own.

    .venv/bin/python bench/import_time.py [--json]

Leaves with 1 where the goal was missed.
"""

import argparse
import json
import statistics
import subprocess
import sys

GOAL = 0.150  # seconds
ROUNDS = 11
# Other programs on the machine disturb a process's own time less than the clock on the wall.
CHILD = """
import time
import numpy
start = time.process_time()
import clika_runtime
print(time.process_time() - start)
"""


def seconds() -> float:
    child = subprocess.run([sys.executable, "-c", CHILD], check=True, capture_output=True, text=True)
    return float(child.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="a JSON object instead of a line")
    options = parser.parse_args()
    seconds()  # fills the system's cache of files
    taken = statistics.median(seconds() for _ in range(ROUNDS))
    kept = taken < GOAL
    if options.json:
        print(json.dumps({"case": "import above NumPy's", "seconds": taken, "goal": GOAL, "kept": kept}))
    else:
        verdict = "ok" if kept else "MISSED"
        print(f"{'import above NumPy':28} {taken * 1e3:6.1f} ms   goal {GOAL * 1e3:.0f} ms: {verdict}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
