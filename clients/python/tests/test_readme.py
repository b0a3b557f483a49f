"""The README's example runs, and its table of events is whole."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from .cards import card, skill, task
from .conftest import Registry

HERE = Path(__file__).resolve().parents[1]
README = (HERE / "README.md").read_text()


def example() -> str:
    found = re.search(r"```python\n(.*?)```", README, re.S)
    assert found
    return found[1]


@pytest.mark.parametrize(
    ("answer", "prints"),
    [
        (task("completed", {"text": "# x", "mediaType": "text/markdown"}), ""),
        (
            task("completed", {"text": "x"}),
            "drift: /result/task/artifacts/0/parts/0: text is none of text/markdown",
        ),
        (task("failed", message="unknown skill"), "stale: the task is failed and says 'unknown skill' | additive"),
    ],
)
def test_the_example_runs(
    registry: Registry, capsys: pytest.CaptureFixture[str], answer: Any, prints: str
) -> None:
    agent = "acme/worker-7"
    registry.put(agent, card())

    def call_the_agent(negotiated: Any) -> Any:
        assert negotiated.card.skill("summarize-v2") is not None
        registry.put(agent, card(skill("summarize-v2"), skill("more")))
        return answer

    source = example().replace("http://127.0.0.1:7878", registry.url)
    exec(compile(source, "README.md", "exec"), {"call_the_agent": call_the_agent})
    assert capsys.readouterr().out.replace("silent ", "").startswith(prints)


def test_the_events_are_all_in_the_readme() -> None:
    table = README.split("## Events")[1]
    named = set(re.findall(r"`([a-z_]+)`", table))
    code = "".join(path.read_text() for path in (HERE / "src/cardfence").glob("*.py"))
    told = set(re.findall(r'tell\(\s*"([a-z_]+)"', code)) | {
        "memo_served",
        "revalidated",
        "resolved",
        "observer_failed",
    }
    told |= {"stale_card_evidence", "artifact_drift", "drift_reported", "drift_unsupported", "drift_failed"}
    assert told <= named and named - told <= {"at", "watch_distrusted", "watch_proven"}, told ^ named


def test_the_package_needs_nothing_but_httpx() -> None:
    project = (HERE / "pyproject.toml").read_text()
    assert re.search(r'^dependencies = \["httpx[^"]*"\]$', project, re.M)
    imported = set()
    for path in (HERE / "src/cardfence").glob("*.py"):
        if path.name != "a2a.py":
            imported |= set(re.findall(r"^(?:from|import) ([a-z0-9_]+)", path.read_text(), re.M))
    import sys

    assert imported - set(sys.stdlib_module_names) <= {"httpx"}
