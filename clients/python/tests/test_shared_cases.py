"""The tables in clients/cases, which the Rust client's suite runs too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cardfence.card import Card
from cardfence.check import Checked, Drift, Mode, Stale, Unreadable, judge
from cardfence.modes import accepts

CASES = Path(__file__).resolve().parents[2] / "cases"
CHECK = json.loads((CASES / "check.json").read_text())
MODES = json.loads((CASES / "modes.json").read_text())


def outcome(finding: Any) -> dict[str, Any]:
    match finding:
        case Stale():
            named = {name: getattr(finding, name) for name in ("state", "pattern", "error", "status")}
            told = {name: value for name, value in named.items() if value is not None}
            return {"outcome": "StaleAgentCard", "evidence": finding.evidence, **told}
        case Drift():
            told = {"pointer": finding.pointer, "found": finding.found, "verified": finding.verified}
            return {"outcome": "ArtifactSchemaDrift", **told}
        case Unreadable():
            return {"outcome": "Unreadable"}
        case Checked():
            return {"outcome": "ok", "kind": finding.kind, "state": finding.state}
        case _:
            raise AssertionError(finding)


RUNS = [(case, mode) for case in CHECK["cases"] for mode in Mode if case["mode"] in ("both", mode.value)]


@pytest.mark.parametrize(("case", "mode"), RUNS, ids=[f"{mode.value}: {case['name']}" for case, mode in RUNS])
def test_every_answer_is_judged_as_the_table_says(case: dict[str, Any], mode: Mode) -> None:
    card = Card(CHECK["cards"][case["card"]])
    found = judge(card, case["skill"], case["response"], mode=mode, http_status=case.get("http_status"))
    told = outcome(found)
    if case["expect"]["outcome"] == "ok":
        told = {name: told.get(name) for name in case["expect"]}
    assert told == case["expect"]


@pytest.mark.parametrize("case", MODES["cases"], ids=lambda case: f"{case['card']} {case['wanted']}")
def test_modes_compare_as_the_table_says(case: dict[str, Any]) -> None:
    assert accepts(case["card"], case["wanted"]) is case["accepts"]


def test_the_table_is_large_enough_and_its_names_are_unique() -> None:
    names = [case["name"] for case in CHECK["cases"]]
    assert len(names) >= 80 and len(set(names)) == len(names)
    assert {case["card"] for case in CHECK["cases"]} == set(CHECK["cards"])
