"""Devices, true lengths and made-up loads of the simulator."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from batchrunner.errors import BatchrunError, DataError, UsageError
from batchrunner.simulate.cost.device import Device
from batchrunner.simulate.load import loads
from batchrunner.simulate.load.lengths import Lengths

H100 = {key: value for key, value in asdict(Device.load("h100-sxm")).items() if key != "name"}


def device_file(folder: Path, **changes: object) -> str:
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in (H100 | changes).items() if value is not None}))
    return str(path)


@pytest.mark.parametrize("name", ["h100-sxm", "h200", "a100-80g", "l4", "cpu"])
def test_built_in_devices(name: str) -> None:
    assert Device.load(name).name == name


def test_an_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"device 'h999': unknown; .* h100-sxm, h200, a100-80g, l4, cpu"):
        Device.load("h999")


def test_a_device_of_ones_own(tmp_path: Path) -> None:
    device = Device.load(device_file(tmp_path, flops="5e12", step_overhead_seconds=0))
    assert (device.name, device.flops, device.step_overhead_seconds) == ("mine", 5e12, 0)
    assert device.link_bytes_per_second == 50e9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flops": None}, "flops: this key is required"),
        ({"flop": 3}, "flop: unknown key; did you mean 'flops'?"),
        ({"colour": 3}, "colour: unknown key; known keys: flops, "),
        ({"flops": 0}, "flops: 0 should be a number above 0"),
        ({"flops": "fast"}, "flops: 'fast' should be a number above 0"),
        ({"flops": True}, "flops: True should be a number above 0"),
        ({"flops": float("inf")}, "flops: inf should be a number above 0"),
        ({"bytes_efficiency": 1.5}, "bytes_efficiency: 1.5 should be a number above 0 and at most 1"),
        ({"scheduling_seconds": -1}, "scheduling_seconds: -1 should be a number from 0 up"),
    ],
)
def test_what_is_wrong_in_a_device_file_is_named(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        Device.load(device_file(tmp_path, **changes))
    assert f"mine.yaml: {message}" in str(caught.value)


def test_device_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        Device.load(str(tmp_path / "none.yaml"))
    for text, message in (("{", "not valid YAML"), ("- 1", "should have the keys flops, ")):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(UsageError, match=message):
            Device.load(str(tmp_path / "bad.yaml"))


def lengths(text: object, limits: list[int], seed: int = 0) -> list[int]:
    return Lengths.parse(str(text)).for_rows(limits, seed)


def test_lengths_by_rule() -> None:
    assert lengths("max", [5, 9]) == [5, 9]
    assert lengths("fixed:7", [5, 9]) == [5, 7]
    assert set(lengths("uniform:3,5", [100] * 200)) == {3, 4, 5}
    assert lengths("sharegpt", [100] * 9, seed=1) == lengths("sharegpt", [100] * 9, seed=1)
    assert lengths("sharegpt", [100] * 9, seed=1) != lengths("sharegpt", [100] * 9, seed=2)


@pytest.mark.parametrize(
    ("text", "mean", "median"), [("sharegpt", 340, 200), ("lognormal:100,0.5", 100, 100 * np.exp(-0.125))]
)
def test_lengths_with_a_long_tail(text: str, mean: float, median: float) -> None:
    drawn = lengths(text, [10**6] * 100_000)
    assert np.mean(drawn) == pytest.approx(mean, rel=0.02)
    assert np.median(drawn) == pytest.approx(median, rel=0.02)
    assert min(drawn) >= 1


def test_lengths_from_files(tmp_path: Path) -> None:
    text, rows, table = tmp_path / "a.txt", tmp_path / "a.jsonl", tmp_path / "a.parquet"
    text.write_text("3\n0\n50\n")
    rows.write_text('{"num_output_tokens": 3, "x": 1}\n0\n{"num_output_tokens": 50}\n')
    pq.write_table(pa.table({"num_output_tokens": [3, 0, 50], "x": ["", "", ""]}), table)
    for path in (text, rows, table):
        assert lengths(path, [9, 9, 9]) == [3, 1, 9]


def test_lengths_of_a_run(tmp_path: Path) -> None:
    files: list[list[int | None]] = [[4, None], [6]]
    for index, values in enumerate(files):
        column = pa.array([{"request_id": "", "num_output_tokens": value} for value in values])
        pq.write_table(pa.table({"_batchrun": column}), tmp_path / f"data-0000{index}-of-00002.parquet")
    with pytest.raises(UsageError, match="run its job to the end first"):
        lengths(f"run:{tmp_path}", [9])
    (tmp_path / "_SUCCESS").touch()
    assert lengths(f"run:{tmp_path}", [9, 9, 9]) == [4, 1, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("median", "--lengths median: unknown; write max, fixed:N,"),
        ("fixed:", "--lengths fixed:: write one whole number above 0"),
        ("fixed:2.5", "--lengths fixed:2.5: write one whole number above 0"),
        ("uniform:3", "--lengths uniform:3: write 2 whole numbers with a comma between them, above 0"),
        ("uniform:5,3", "--lengths uniform:5,3: 5 is above 3; write the smaller number first"),
        ("lognormal:0,1", "--lengths lognormal:0,1: write 2 numbers"),
        ("lognormal:nan,1", "--lengths lognormal:nan,1: write 2 numbers"),
        ("none.txt", "--lengths none.txt: there is no such file"),
        ("run:none", "--lengths run:none: is not the output folder of a finished run"),
    ],
)
def test_wrong_lengths_are_named(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Lengths.parse(text)
    assert message in str(caught.value)


def test_wrong_files_of_lengths_are_named(tmp_path: Path) -> None:
    text, table = tmp_path / "a.txt", tmp_path / "a.parquet"
    for line in ("x", "-1", "1.5", "true", "{}", ""):
        text.write_text(f"1\n{line}\n")
        with pytest.raises(DataError, match=r"line 2: .* has no length"):
            Lengths.parse(str(text))
    text.write_text("1\n2\n")
    with pytest.raises(UsageError, match="has 2 lengths, and there are 3 rows"):
        lengths(text, [1, 1, 1])
    for columns, message in (({"x": [1]}, "has no column"), ({"num_output_tokens": [-1]}, "whole numbers")):
        pq.write_table(pa.table(columns), table)
        with pytest.raises(DataError, match=message):
            Lengths.parse(str(table))
    table.write_bytes(b"no table")
    with pytest.raises(BatchrunError, match=r"a\.parquet"):
        Lengths.parse(str(table))


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: loads.equal(5, 20, 30, seed=seed),
        lambda seed: loads.sharegpt_like(5, seed=seed),
        lambda seed: loads.shared_prefixes(6, 2, 10, 4, 3, seed=seed),
        lambda seed: loads.conversations(3, 4, 10, 4, 3, seed=seed),
    ],
)
def test_loads_are_the_same_for_the_same_seed(make: Callable[[int], list[loads.SimRow]]) -> None:
    assert make(3) == make(3)
    assert make(3) != make(4)
    assert all(1 <= row.num_output_tokens <= row.max_tokens for row in make(3))
    assert max(token for row in make(3) for token in row.token_ids) < 2**31


def test_rows_share_nothing_unless_made_to() -> None:
    rows = loads.equal(1000, 20, 30)
    assert len({row.token_ids[0] for row in rows}) == 1000
    assert {len(row.token_ids) for row in rows} == {20}
    assert len({loads.answer_token(row.answer_seed, 0) for row in rows} | {row.token_ids[0] for row in rows}) == 2000


def test_sharegpt_like_rows_have_a_long_tail() -> None:
    outputs = [row.num_output_tokens for row in loads.sharegpt_like(20_000)]
    assert np.mean(outputs) == pytest.approx(330, rel=0.03)  # 340 before the cut at 2,048
    assert max(outputs) > 5 * np.mean(outputs)


def test_shared_prefixes() -> None:
    rows = loads.shared_prefixes(60, 3, num_shared=10, num_own=4, num_output=3)
    prefixes = [tuple(row.token_ids[:10]) for row in rows]
    assert sorted(map(prefixes.count, set(prefixes))) == [20, 20, 20]
    assert len({tuple(row.token_ids[10:]) for row in rows}) == 60
    assert prefixes[:3] != prefixes[3:6]  # shuffled


def test_a_turn_begins_with_the_turn_before_and_its_answer() -> None:
    rows = loads.conversations(2, 3, num_first=10, num_a_turn=4, num_output=3)
    assert [row.follows for row in rows] == [None, None, 0, 1, 2, 3]
    for row in rows[2:]:
        assert row.follows is not None
        before = rows[row.follows]
        answer = [loads.answer_token(before.answer_seed, position) for position in range(3)]
        assert row.token_ids[:-4] == before.token_ids + answer
    assert [len(row.token_ids) for row in rows] == [10, 10, 17, 17, 24, 24]
