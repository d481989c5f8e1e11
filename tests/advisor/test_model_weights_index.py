"""Exact bytes from a safetensors index or from headers, and broken files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from vllm_advisor.errors import BadInput
from vllm_advisor.model.weights_index import exact_bytes


if TYPE_CHECKING:
    from pathlib import Path


def write_safetensors(file: Path, sizes: dict[str, int]) -> None:
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for tensor, size in sizes.items():
        header[tensor] = {"dtype": "U8", "shape": [size], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + bytes(at))


def test_the_index_total_is_taken(tmp_path: Path) -> None:
    """`metadata.total_size` is the sum of all tensors."""
    (tmp_path / "model.safetensors.index.json").write_text(
        '{"metadata": {"total_size": 13761264768}, "weight_map": {}}'
    )
    assert 13_761_264_768 == exact_bytes(tmp_path)


def test_headers_are_summed_without_an_index(tmp_path: Path) -> None:
    """Without an index the headers of all model files count; consolidated copies beside them do not."""
    write_safetensors(tmp_path / "model-00001-of-00002.safetensors", {"a": 100, "b": 28})
    write_safetensors(tmp_path / "model-00002-of-00002.safetensors", {"c": 7})
    write_safetensors(tmp_path / "consolidated.safetensors", {"a": 135})
    assert 135 == exact_bytes(tmp_path)


def test_an_index_without_a_total_falls_back_to_headers(tmp_path: Path) -> None:
    """Some indices carry no metadata."""
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {}}')
    write_safetensors(tmp_path / "model.safetensors", {"a": 5})
    assert 5 == exact_bytes(tmp_path)


def test_no_files_is_none(tmp_path: Path) -> None:
    """A folder with only a config says nothing."""
    assert exact_bytes(tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"\x01", b"\xff" * 64, (10).to_bytes(8, "little") + b"not json!!", (4).to_bytes(8, "little") + b"[1]\n",
     (2**62).to_bytes(8, "little"), (40).to_bytes(8, "little") + b'{"a": {"data_offsets": [9, 3]}}'.ljust(40)],
)  # fmt: skip
def test_broken_headers_are_refused(tmp_path: Path, content: bytes) -> None:
    """A length beyond the file, a header that is no JSON object, offsets that run backwards: bad input."""
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(BadInput, match=r"model\.safetensors"):
        exact_bytes(tmp_path)


def test_a_broken_index_is_refused(tmp_path: Path) -> None:
    """An index that is not JSON is said to be broken."""
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with pytest.raises(BadInput, match="not JSON"):
        exact_bytes(tmp_path)
