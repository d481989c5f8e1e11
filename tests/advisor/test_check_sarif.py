"""SARIF: the essential parts of the 2.1.0 schema hold, every rule is described, and fixes point at the very words."""

import jsonschema
import pytest

from vllm_advisor.check import ids, read, report, sarif
from vllm_advisor.check.ids import BY_ID
from vllm_advisor.vllm import surface


# The parts of the OASIS schema that we write, with its own names, types and limits.
REGION = {
    "type": "object",
    "properties": {
        name: {"type": "integer", "minimum": 1} for name in ("startLine", "startColumn", "endLine", "endColumn")
    },
    "additionalProperties": False,
}
MESSAGE = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
ARTIFACT = {"type": "object", "required": ["uri"], "properties": {"uri": {"type": "string", "pattern": r"^\S+$"}}}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
RESULT = {
    "type": "object",
    "required": ["message", "ruleId", "ruleIndex", "level", "locations"],
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": LEVEL,
        "message": MESSAGE,
        "properties": {"type": "object"},
        "locations": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {
                    "physicalLocation": {
                        "type": "object",
                        "required": ["artifactLocation"],
                        "properties": {"artifactLocation": ARTIFACT, "region": REGION},
                    },
                    "logicalLocations": {
                        "type": "array",
                        "items": {"type": "object", "properties": {"fullyQualifiedName": {"type": "string"}}},
                    },
                },
                "additionalProperties": False,
            },
        },
        "fixes": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["artifactChanges"],
                "properties": {
                    "description": MESSAGE,
                    "artifactChanges": {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "object",
                            "required": ["artifactLocation", "replacements"],
                            "properties": {
                                "artifactLocation": ARTIFACT,
                                "replacements": {
                                    "type": "array",
                                    "minItems": 1,
                                    "items": {
                                        "type": "object",
                                        "required": ["deletedRegion"],
                                        "properties": {"deletedRegion": REGION, "insertedContent": MESSAGE},
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
    "additionalProperties": False,
}
RULE = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "shortDescription": MESSAGE,
        "defaultConfiguration": {"type": "object", "properties": {"level": LEVEL}},
    },
    "additionalProperties": False,
}
DRIVER = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "version": {"type": "string"},
        "rules": {"type": "array", "uniqueItems": True, "items": RULE},
    },
    "additionalProperties": False,
}
RUN = {
    "type": "object",
    "required": ["tool"],
    "properties": {
        "tool": {"type": "object", "required": ["driver"], "properties": {"driver": DRIVER}},
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "results": {"type": "array", "items": RESULT},
    },
    "additionalProperties": False,
}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": RUN},
    },
    "additionalProperties": False,
}
SCRIPT = """\
#!/bin/sh
export VLLM_ROCM_FP8_PADDING=1
vllm serve org/m \\
  --kv-cache-dtype fp8_e4m3fn \\
  --swap-space 4 --max-num-seqs "1k"
"""


def written(tmp_path, text=SCRIPT, name="serve now.sh"):
    path = tmp_path / name
    path.write_text(text)
    reports = [report.judge(one, surface.load("0.33.0")) for one in read.file(path)]
    return sarif.document(reports, {str(path): text}, "1.0")


def by_id(document, rule_id):
    (one,) = [r for r in document["runs"][0]["results"] if r["ruleId"] == rule_id]
    return one


def test_the_document_has_the_form_of_the_standard(tmp_path):
    """Checked by the parts of its schema that we write; anything else would be an unknown key."""
    jsonschema.validate(written(tmp_path), SARIF)


def test_a_clean_command_is_a_run_without_results():
    """Not an empty document."""
    loaded = surface.load("0.33.0")
    clean = report.judge(read.command_line(["vllm", "serve", "org/m", "--api-key", "x", "--host", "127.0.0.1"]), loaded)
    document = sarif.document([clean._replace(findings=())], {}, "1.0")
    jsonschema.validate(document, SARIF)

    assert [] == document["runs"][0]["results"]


def test_results_point_at_their_rule_and_line(tmp_path):
    """`ruleIndex` is the rule's place, the line is that of the word, the URI has no blank."""
    document = written(tmp_path)
    rules = document["runs"][0]["tool"]["driver"]["rules"]
    result = by_id(document, "FLG-02")
    physical = result["locations"][0]["physicalLocation"]

    assert ("FLG-02", 5) == (rules[result["ruleIndex"]]["id"], physical["region"]["startLine"])
    assert physical["artifactLocation"]["uri"].endswith("/serve%20now.sh")


def test_a_fix_replaces_the_words_of_its_line(tmp_path):
    """Columns count from one; applying it gives the corrected line."""
    (replaced,) = by_id(written(tmp_path), "VAL-07")["fixes"][0]["artifactChanges"][0]["replacements"]
    line, region = SCRIPT.splitlines()[3], replaced["deletedRegion"]
    new = line[: region["startColumn"] - 1] + replaced["insertedContent"]["text"] + line[region["endColumn"] - 1 :]

    assert "  --kv-cache-dtype fp8_e4m3 \\" == new


def test_what_is_not_found_as_written_has_no_fix(tmp_path):
    """A quoted value is another text than its word."""
    assert "fixes" not in by_id(written(tmp_path), "VAL-03")


def test_a_command_line_has_a_logical_location():
    """There is no file to point at."""
    found = report.judge(read.command_line(["vllm", "serve", "org/m", "--swap-space", "4"]), surface.load("0.33.0"))
    document = sarif.document([found], {}, "1.0")
    jsonschema.validate(document, SARIF)

    assert [{"fullyQualifiedName": "command line"}] == by_id(document, "FLG-02")["locations"][0]["logicalLocations"]


@pytest.mark.parametrize("row", ids.IDS, ids=lambda row: row.id)
def test_every_id_has_a_title_a_level_and_a_source(row):
    """So that SARIF and docs can describe it."""
    assert row.level in LEVEL["enum"]
    assert row.title
    assert row.source
    assert row == BY_ID[row.id]
