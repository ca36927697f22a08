"""Run a benchmark from Python and read its results with pandas.

python examples/benchmark.py --out runs/example
"""

import argparse
from pathlib import Path

import numpy as np

from covshift.bench import frame, run


def main() -> None:
    """Benchmark a built-in network under two corruptions; started again, it computes nothing twice."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="builtin:cifar10", help="any labelled images that covshift opens")
    parser.add_argument("--limit", type=int, default=200, help="number of images")
    parser.add_argument("--out", type=Path, default=Path("runs/example"), help="run folder")
    arguments = parser.parse_args()

    settings = {
        "model": "builtin:resnet20",
        "data": arguments.data,
        "limit": arguments.limit,
        "corruptions": ["fog", "gaussian_noise"],
        "severities": [1, 3],
        "prior": 16,
    }
    run(settings, arguments.out)
    rows = frame(arguments.out)
    print(rows.pivot_table(index=["corruption", "severity"], columns="method", values="top1_error").to_string())
    print(f"fewest errors: {rows.method[int(np.argmin(rows.top1_error))]}")


if __name__ == "__main__":
    main()
