"""Print the first rows of an output folder: python examples/show.py out/quickstart"""

import sys
from pathlib import Path

import pyarrow.parquet as pq

NUM_ROWS = 5


def main(folder: Path) -> None:
    table = pq.read_table(sorted(folder.glob("data-*.parquet"))[0]).slice(0, NUM_ROWS)
    answer = table.column_names[-2]
    print(f"The results are in {folder.resolve()}. The first rows:")
    for row in table.to_pylist():
        print(f"  {str(row[answer]).strip():12}  {row['text']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
