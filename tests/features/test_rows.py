import json
import struct
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from exhume.errors import ExhumeError
from exhume.features import rows as rows_module
from exhume.features.rows import DrawnRows, HeldRows, MappedRows, PlainRows, Rows, blocks, hold, raw_bytes, write_rows

P = 700  # two whole chunks of 256 rows and a part of a third
DIMENSIONS = (1, 3, 17)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[HeldRows, MappedRows, DrawnRows]]:
    """The same rows in memory, in a file and as a seed, for several dimensions."""
    folder = tmp_path_factory.mktemp("rows")
    drawn = {d: DrawnRows(seed=11, p=P, d=d) for d in DIMENSIONS}
    return {d: (hold(rows), write_rows(rows, folder / f"{d}.safetensors"), rows) for d, rows in drawn.items()}


cuts = st.tuples(st.integers(0, P), st.integers(0, P)).map(sorted)


@given(st.sampled_from(DIMENSIONS), cuts)
def test_held_mapped_and_drawn_rows_give_the_same_bits_for_any_block(
    kept: dict[int, tuple[HeldRows, MappedRows, DrawnRows]], d: int, cut: list[int]
) -> None:
    held, mapped, drawn = kept[d]
    start, stop = cut
    expected = held.values[start:stop]
    assert expected.shape == (stop - start, d)
    for rows in (held, mapped, drawn):
        assert torch.equal(rows.block(start, stop), expected)


@given(st.sampled_from(DIMENSIONS), cuts, st.data())
def test_a_part_of_a_part_is_the_slice_of_the_slice(
    kept: dict[int, tuple[HeldRows, MappedRows, DrawnRows]], d: int, cut: list[int], data: st.DataObject
) -> None:
    start, stop = cut
    inner, outer = sorted(data.draw(st.tuples(st.integers(0, stop - start), st.integers(0, stop - start))))
    for rows in kept[d]:
        part: Rows = rows.part(start, stop).part(inner, outer)
        assert (part.p, part.d) == (outer - inner, d)
        assert torch.equal(part.block(0, part.p), kept[d][0].values[start:stop][inner:outer])


@given(st.sampled_from(DIMENSIONS), st.lists(st.integers(1, P - 1), max_size=6, unique=True), st.randoms())
def test_blocks_asked_for_in_any_order_make_up_the_same_matrix(
    kept: dict[int, tuple[HeldRows, MappedRows, DrawnRows]], d: int, inner: list[int], order: object
) -> None:
    pieces = list(pairwise([0, *sorted(inner), P]))
    order.shuffle(pieces)  # type: ignore[attr-defined]
    for rows in kept[d]:
        whole = torch.full((P, d), torch.nan)
        for start, stop in pieces:
            whole[start:stop] = rows.block(start, stop)
        assert torch.equal(whole, kept[d][0].values)


def test_rows_far_into_the_endless_matrix_are_those_of_a_long_draw() -> None:
    assert torch.equal(
        DrawnRows(5, 10_000, 2).part(9_000, 9_300).block(0, 300), DrawnRows(5, 10_000, 2).block(9_000, 9_300)
    )
    far = DrawnRows(5, 2**40, 2).part(2**40 - 300, 2**40)
    assert torch.equal(far.block(100, 300), DrawnRows(5, 300, 2, first=2**40 - 300).block(0, 300)[100:])


def test_the_number_of_threads_does_not_change_the_draw() -> None:
    expected = DrawnRows(3, 3000, 4).block(0, 3000)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(DrawnRows(3, 3000, 4).block(0, 3000), expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("d", [1, 4, 50])
def test_entries_are_independent_normals_of_variance_one_over_d(d: int) -> None:
    count = 400_000 // d
    values = DrawnRows(seed=2, p=count, d=d).block(0, count).double() * d**0.5
    entries = values.flatten()
    error = 4.5 / entries.numel() ** 0.5
    assert abs(entries.mean()) < error
    assert abs(entries.square().mean() - 1) < error * 2**0.5
    assert abs(entries.pow(4).mean() - 3) < error * 96**0.5
    neighbours = entries[1:] * entries[:-1]
    assert abs(neighbours.mean()) < error
    assert abs((values[256:] * values[:-256]).mean()) < error * 1.1, "chunks are independent of each other"


def test_different_seeds_give_different_uncorrelated_rows() -> None:
    one, two = (DrawnRows(seed, 20_000, 1).block(0, 20_000).flatten() for seed in (0, 1))
    assert abs(torch.corrcoef(torch.stack([one, two]))[0, 1]) < 5 / 20_000**0.5


def test_a_draw_never_changes_because_saved_observations_depend_on_it() -> None:
    stream = np.random.Generator(np.random.Philox(key=9, counter=[0, 0, 0, 1]))
    chunk = stream.standard_normal((256, 4), dtype=np.float32) * np.float32(0.5)
    assert np.array_equal(DrawnRows(9, 512, 4).block(256, 512).numpy(), chunk)


@given(st.integers(1, 2000), st.integers(1, 500))
def test_blocks_cover_the_rows_once_and_in_order(p: int, size: int) -> None:
    covered = [row for block in blocks(DrawnRows(0, p, 1), size) for row in range(block.start, block.stop)]
    assert covered == list(range(p))
    assert max(block.stop - block.start for block in blocks(DrawnRows(0, p, 1), size)) <= size


@pytest.mark.parametrize("d", [1, 3072, 12_288, 10**7])
def test_a_block_to_be_made_is_a_few_whole_chunks(d: int) -> None:
    size = DrawnRows(0, 10**9, d).block_rows
    assert size % 256 == 0
    assert size * d * 4 <= max(rows_module.BLOCK_BYTES, 256 * d * 4)


@settings(max_examples=20)
@given(st.sampled_from(DIMENSIONS), st.sampled_from([torch.float32, torch.float64, torch.float16]))
def test_hold_equals_the_rows_in_the_precision_asked_for(
    kept: dict[int, tuple[HeldRows, MappedRows, DrawnRows]], d: int, dtype: torch.dtype
) -> None:
    for rows in kept[d]:
        held = hold(rows, dtype=dtype)
        assert held.values.dtype == dtype
        assert torch.equal(held.values, kept[d][0].values.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.bfloat16])
def test_held_rows_are_written_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.randn(300, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    written = write_rows(HeldRows(values), tmp_path / "v")
    assert torch.equal(written.block(0, 300).to(dtype), values)
    theirs = load_file(tmp_path / "v")
    assert list(theirs) == ["V"]
    assert torch.equal(theirs["V"].to(dtype), values)
    assert torch.equal(write_rows(HeldRows(values.T), tmp_path / "t").block(0, 5).to(dtype), values.T)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_file_of_safetensors_own_making_is_mapped_right(tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    save_file({"other": torch.ones(3, dtype=torch.int8), "V": values, "Z": values + 1}, tmp_path / "v")
    mapped = MappedRows.open(tmp_path / "v")
    assert torch.equal(mapped.block(0, 20), values)
    assert torch.equal(mapped.part(3, 9).block(2, 4), values[5:7])


def test_writing_to_a_block_does_not_write_to_the_file(tmp_path: Path) -> None:
    mapped = write_rows(DrawnRows(0, 20, 3), tmp_path / "v")
    mapped.block(0, 20).zero_()
    assert torch.equal(mapped.block(0, 20), DrawnRows(0, 20, 3).block(0, 20))


def refusal(path: Path) -> str:
    with pytest.raises(ExhumeError) as caught:
        MappedRows.open(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_a_truncated_file_of_rows_is_refused_at_every_length(tmp_path: Path) -> None:
    path = tmp_path / "v"
    write_rows(DrawnRows(0, 5, 3), path)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refusal(path)


def test_a_header_that_claims_more_rows_than_there_are_is_refused(tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [10**9, 3], "data_offsets": [0, 12 * 10**9]}
    header = json.dumps({"V": entry}).encode()
    (tmp_path / "v").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 60)
    assert "cut off" in refusal(tmp_path / "v")


@pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16, torch.bool, torch.uint8])
def test_rows_of_another_type_are_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    save_file({"V": torch.ones(4, 3).to(dtype)}, tmp_path / "v")
    assert "F32" in refusal(tmp_path / "v")


@pytest.mark.parametrize("shape", [(), (12,), (2, 3, 2), (0, 3), (4, 0)])
def test_rows_of_another_rank_or_without_any_number_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    save_file({"V": torch.ones(shape)}, tmp_path / "v")
    assert f"found shape {list(shape)}" in refusal(tmp_path / "v")


def test_a_file_without_the_tensor_is_refused_and_its_own_are_named(tmp_path: Path) -> None:
    save_file({"W": torch.ones(4, 3)}, tmp_path / "v")
    assert refusal(tmp_path / "v").endswith("found 'W'")
    save_file({f"layer\n{number}": torch.ones(1) for number in range(3000)}, tmp_path / "v")
    assert len(refusal(tmp_path / "v")) < 400
    save_file({}, tmp_path / "v")
    assert refusal(tmp_path / "v").endswith("found none")


class FailingRows(PlainRows):
    """Rows that can be read up to a block, and then the disk is full."""

    p, d, block_rows = 600, 2, 256

    def block(self, start: int, stop: int) -> torch.Tensor:
        if start > 0:
            raise OSError(28, "No space left on device")
        return torch.zeros(stop - start, 2)

    def part(self, start: int, stop: int) -> "FailingRows":
        return self


def test_a_write_that_fails_half_way_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match="No space left") as caught:
        write_rows(FailingRows(), tmp_path / "v")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_keeps_the_rows_that_were_there(tmp_path: Path) -> None:
    mapped = write_rows(DrawnRows(0, 20, 3), tmp_path / "v")
    with pytest.raises(ExhumeError):
        write_rows(FailingRows(), tmp_path / "v")
    assert torch.equal(mapped.block(0, 20), DrawnRows(0, 20, 3).block(0, 20))
    assert list(tmp_path.iterdir()) == [tmp_path / "v"]


def test_bytes_of_one_number_that_was_cut_out_of_a_matrix() -> None:
    cut = torch.ones(1, 151)[:, 150]
    assert cut.stride() == (151,)
    assert raw_bytes(cut) == raw_bytes(torch.ones(1))
