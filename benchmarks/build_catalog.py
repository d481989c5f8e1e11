"""Make the model catalog, advisor/vllm_advisor/catalog/models/, from a folder of Hugging Face configs.

Run it again whenever `vllm_advisor.model.config.read` learns something:

    PYTHONPATH=advisor python benchmarks/build_catalog.py ../shared/models

The folder holds `<publisher>--<name>.json` files, each with a `_provenance_class`, and an INDEX.tsv with the columns
model_id, file, provenance_class, …, safetensors_total_size. Only what `read` makes of a config is kept: numbers and
our own words. Builds without a repository (`local--*`) and configs that cannot be read are left out; models that vLLM
cannot serve as language models go to the index with the reason. The same folder gives the same bytes.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_advisor.catalog.models import FOLDER, INDEX, Entry
from vllm_advisor.catalog.models_codec import SCHEMA, encode
from vllm_advisor.catalog.models_groups import groups, siblings
from vllm_advisor.errors import BadInput, UnsupportedModel
from vllm_advisor.model.config import read


if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_advisor.model.spec import ModelSpec


NAMELESS = "local--"
SOURCES = {
    "verbatim": "catalog: the published config.json",
    "assembled": "catalog: put together from published figures",
    "derived-quant": "catalog: the base model's config with the publisher's usual quantization recipe",
}


class Row(NamedTuple):
    """One line of INDEX.tsv. `total_bytes` only where the table has it exactly (no `~`)."""

    model_id: str
    file: str
    provenance: str
    total_bytes: int | None


def rows(folder: Path) -> Iterator[Row]:
    """The configs with a repository, by name; of two names that differ in case alone, the first."""
    seen: set[str] = set()
    with (folder / "INDEX.tsv").open(encoding="utf-8", newline="") as table:
        lines = sorted(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE), key=lambda line: line["model_id"])
    for line in lines:
        name = line["model_id"]
        if line["file"].startswith(NAMELESS) or name.lower() in seen:
            continue
        seen.add(name.lower())
        yield Row(name, line["file"], line["provenance_class"], _exact(line["safetensors_total_size"]))


def _exact(size: str | None) -> int | None:
    return int(size) if size and size.isdecimal() else None


def spec_of(folder: Path, row: Row) -> ModelSpec:
    """What `read` makes of one config, with the exact size of its tensors where the table has one."""
    config = json.loads((folder / row.file).read_text(encoding="utf-8"))
    mapping = {key: value for key, value in config.items() if not key.startswith("_")}
    spec = read(mapping, name=row.model_id, source=SOURCES[row.provenance], provenance=row.provenance)
    return replace(spec, exact_weight_bytes=row.total_bytes) if row.total_bytes else spec


def collect(folder: Path) -> tuple[list[ModelSpec], dict[str, str]]:
    """All specs, and the refused ones with the reason."""
    specs: list[ModelSpec] = []
    refused: dict[str, str] = {}
    for row in rows(folder):
        try:
            specs.append(spec_of(folder, row))
        except UnsupportedModel as error:
            refused[row.model_id] = error.message
        except BadInput as error:
            print(f"  left out {row.model_id}: {error.message}")
    return specs, refused


def related(specs: list[ModelSpec]) -> list[ModelSpec]:
    """The specs with their base model and siblings, by name."""
    found = [
        replace(spec, base_model=group[0].name, siblings=siblings(spec, group))
        for group in groups(specs)
        for spec in group
    ]
    return sorted(found, key=lambda spec: spec.name)


def file_name(model_id: str) -> str:
    """Lower case, because some file systems hold only one of two names that differ in case."""
    return model_id.replace("/", "--").lower() + ".json"


def write(specs: list[ModelSpec], refused: dict[str, str], folder: Path) -> None:
    """One file a model and the index; files of models that are gone are removed."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    for spec in specs:
        (folder / file_name(spec.name)).write_text(_compact(encode(spec)), encoding="utf-8")
    models = {
        s.name: Entry(file_name(s.name), s.base_model, s.quantization.scheme, s.params, s.provenance) for s in specs
    }
    lines = ",\n".join(f"{json.dumps(name)}:{_compact(entry).rstrip()}" for name, entry in models.items())
    index = f'{{"schema":{SCHEMA},"models":{{\n{lines}\n}},\n"refused":{json.dumps(refused, indent=0)}}}\n'
    (folder / INDEX).write_text(index, encoding="utf-8")


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=True) + "\n"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Make the model catalog from a folder of Hugging Face configs.")
    parser.add_argument("configs", type=Path, help="folder with INDEX.tsv and <publisher>--<name>.json files")
    parser.add_argument("--out", type=Path, default=FOLDER, help="where to write (default: the package's own catalog)")
    options = parser.parse_args(arguments)
    specs, refused = collect(options.configs)
    write(related(specs), refused, options.out)
    print(f"{len(specs)} models, {len(refused)} refused, {dict(Counter(s.provenance for s in specs))}")
    for name, reason in refused.items():
        print(f"  refused {name}: {reason}")
    for spec in specs:
        if spec.unknowns:
            print(f"  cannot tell {spec.name}: {'; '.join(spec.unknowns)}")


if __name__ == "__main__":
    main(sys.argv[1:])
