"""The watched copy, event by event, without any IO."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cardfence.clock import Instant
from cardfence.session import Reconnect, Selection, Session, Told, set_digest_of
from cardfence.sse import SseEvent, SseParser
from cardfence.terms import Position

T0 = Instant(1000.0, 5000.0)


def at(seconds: float) -> Instant:
    return Instant(T0.boot + seconds, T0.wall + seconds)


def position(seq: int) -> str:
    return f"{seq}.{seq:016x}"


def raw(agent: str, revision: int) -> str:
    return f"sha256:{agent.encode().hex():0<60}{revision:04d}"


def event(kind: str, seq: int | None, **data: Any) -> SseEvent:
    return SseEvent(kind, json.dumps(data), None if seq is None else position(seq))


def upsert(seq: int | None, agent: str, revision: int, kind: str = "upsert") -> SseEvent:
    card = {"card": {"name": agent, "version": str(revision)}} if kind == "upsert" else {}
    return event(kind, seq, agent=agent, revision=revision, raw_digest=raw(agent, revision), **card)


def digest(*agents: tuple[str, int]) -> str:
    return f"{sum(set_digest_of(a, r, raw(a, r)) for a, r in agents) % (1 << 256):064x}"


def synced(*agents: tuple[str, int], seq: int = 10) -> Session:
    session = Session(Selection())
    session.opened("s1")
    session.receive(event("reset", None, position=position(seq)))
    for agent, revision in agents:
        session.receive(upsert(None, agent, revision))
    session.receive(event("synced", seq))
    return session


def prove(session: Session, now: Instant, seq: int, *agents: tuple[str, int], staleness_ms: Any = 0) -> Any:
    nonce = session.confirm(now)
    told = {"position": position(seq), "set_digest": digest(*agents), "nonce": nonce, "staleness_ms": staleness_ms}
    return session.receive(event("checkpoint", seq, **told))


def kinds(outputs: list[Told | Reconnect]) -> list[str]:
    return [one.kind if isinstance(one, Told) else "reconnect" for one in outputs]


A, B = ("acme/a", 1), ("acme/b", 2)


def test_a_stream_alone_proves_nothing() -> None:
    session = synced(A, B)
    assert session.is_synced and session.age(T0) is None and session.proof() is None
    told = {"position": position(10), "set_digest": digest(A, B)}
    assert kinds(session.receive(event("checkpoint", 10, **told))) == ["checkpoint"]
    # Staleness without a nonce of ours, or with one of somebody else, is not for us.
    session.receive(event("checkpoint", 10, **told, staleness_ms=0))
    session.receive(event("checkpoint", 10, **told, staleness_ms=0, nonce="theirs"))
    assert session.age(T0) is None


def test_a_confirmation_proves_from_the_moment_it_was_asked() -> None:
    session = synced(A, B)
    assert kinds(prove(session, T0, 10, A, B, staleness_ms=250)) == ["proven"]
    assert session.age(at(2)) == pytest.approx(2.25)
    # The clock that went further counts.
    assert session.age(Instant(T0.boot + 1, T0.wall + 100)) == pytest.approx(100.25)
    assert session.proof().age(at(2)) == pytest.approx(2.25)  # type: ignore[union-attr]


def test_an_older_proof_does_not_replace_a_younger_one() -> None:
    session = synced(A)
    prove(session, T0, 10, A, staleness_ms=0)
    prove(session, at(1), 10, A, staleness_ms=5_000)
    assert session.age(at(1)) == pytest.approx(1.0)
    prove(session, at(2), 10, A, staleness_ms=1_500)
    assert session.age(at(2)) == pytest.approx(1.5)


def test_unknown_staleness_proves_nothing() -> None:
    session = synced(A)
    for odd in (None, "0", -1, True):
        prove(session, T0, 10, A, staleness_ms=odd)
        assert session.age(T0) is None, odd


def test_changes_are_applied_and_the_set_digest_follows() -> None:
    session = synced(A, B)
    session.receive(upsert(11, "acme/a", 2))
    session.receive(upsert(12, "acme/c", 1, kind="moved"))
    session.receive(event("retired", 13, agent="acme/b", revision=3))
    assert session.get("acme/a").card.version == "2"  # type: ignore[union-attr]
    assert session.get("acme/c").card is None and session.get("acme/b").retired  # type: ignore[union-attr]
    assert kinds(prove(session, T0, 13, ("acme/a", 2), ("acme/c", 1))) == ["proven"]
    session.receive(event("redacted", 14, agent="acme/a", revision=1))
    assert session.get("acme/a").card is not None  # type: ignore[union-attr]
    session.receive(event("redacted", 15, agent="acme/a", revision=2))
    assert session.get("acme/a").card is None  # type: ignore[union-attr]
    assert kinds(prove(session, T0, 15, ("acme/a", 2), ("acme/c", 1))) == ["proven"]


def test_a_copy_that_is_not_what_the_registry_has_is_thrown_away() -> None:
    session = synced(A, B)
    prove(session, T0, 10, A, B)
    # An event was lost on the way: the registry has a second revision of a.
    outputs = prove(session, at(1), 11, ("acme/a", 2), B)
    assert kinds(outputs) == ["distrusted", "reconnect"]
    assert session.age(at(1)) is None and session.get("acme/a") is None and session.resume_from is None


def test_a_snapshot_is_read_beside_the_old_copy() -> None:
    session = synced(A)
    prove(session, T0, 10, A)
    session.opened("s2")
    session.receive(event("reset", None))
    session.receive(upsert(None, "acme/a", 5))
    # The old copy serves on, and its proof grows old.
    assert session.get("acme/a").revision == 1 and session.age(at(1)) == pytest.approx(1.0)  # type: ignore[union-attr]
    assert str(session.resume_from) == position(10) and not session.is_synced
    session.receive(event("synced", 20))
    assert session.get("acme/a").revision == 5 and session.age(at(1)) is None  # type: ignore[union-attr]
    assert str(session.resume_from) == position(20)


def test_a_lost_stream_keeps_the_copy_and_drops_the_nonces() -> None:
    session = synced(A)
    prove(session, T0, 10, A)
    nonce = session.confirm(at(1))
    session.closed()
    assert session.age(at(5)) == pytest.approx(5.0) and session.get("acme/a") is not None
    session.opened("s2")
    told = {"position": position(10), "set_digest": digest(A), "nonce": nonce, "staleness_ms": 0}
    session.receive(event("checkpoint", 10, **told))
    assert session.age(at(5)) == pytest.approx(5.0)
    # Resumed without a snapshot: what comes is applied to the copy.
    session.receive(upsert(11, "acme/a", 2))
    assert kinds(prove(session, at(6), 11, ("acme/a", 2))) == ["proven"] and session.age(at(6)) == 0.0


def test_the_end_of_a_stream_says_whether_the_copy_stays() -> None:
    for reason, stays in (
        ("draining", True),
        ("subscriber_too_slow", True),
        ("max_age", True),
        ("history_diverged", False),
    ):
        session = synced(A)
        prove(session, T0, 10, A)
        assert kinds(session.receive(event("end", None, reason=reason))) == ["end", "reconnect"]
        assert (session.get("acme/a") is not None) is stays, reason
        assert (session.age(T0) is not None) is stays and (session.resume_from is not None) is stays


@pytest.mark.parametrize(
    "bad",
    [
        event("surprise", 11),
        SseEvent("upsert", "not json", position(11)),
        SseEvent("upsert", "[]", position(11)),
        upsert(None, "acme/a", 2),
        upsert(10, "acme/a", 2),
        upsert(9, "acme/a", 2),
        upsert(11, "acme/a", 1),
        SseEvent("upsert", json.dumps({"agent": "acme/a", "revision": 2, "raw_digest": "x"}), "soon"),
        event("upsert", 11, agent="acme/a", revision=2),
        event("upsert", 11, revision=2, raw_digest="x"),
        event("upsert", 11, agent="acme/a", revision=True, raw_digest="x"),
        event("checkpoint", 10, position=position(10)),
        event("checkpoint", 9, position=position(9), set_digest=digest(A)),
        event("checkpoint", 10, position="10.ffffffffffffffff", set_digest=digest(A)),
        event("checkpoint", None, set_digest=digest(A)),
    ],
    ids=lambda bad: f"{bad.event} {bad.id} {bad.data[:40]}",
)
def test_what_a_stream_may_not_say_closes_it_and_proves_nothing(bad: SseEvent) -> None:
    session = synced(A)
    prove(session, T0, 10, A)
    assert kinds(session.receive(bad))[-1] == "reconnect"
    assert session.age(T0) is None and session.get("acme/a") is None


def test_a_snapshot_of_another_history_drops_the_old_copy_at_once() -> None:
    session = synced(A)
    prove(session, T0, 10, A)
    session.opened("s2")
    session.receive(event("reset", None, position=position(4), reason="history_diverged"))
    assert session.get("acme/a") is None and session.age(T0) is None and session.resume_from is None
    session.receive(upsert(None, "acme/a", 1))
    session.receive(event("synced", 4))
    assert kinds(prove(session, at(1), 4, A)) == ["proven"]


def test_nothing_is_applied_before_a_snapshot() -> None:
    for early in (upsert(1, "acme/a", 1), event("synced", 1), event("checkpoint", 1, set_digest=digest())):
        session = Session(Selection())
        session.opened("s1")
        assert kinds(session.receive(early)) == ["distrusted", "reconnect"]


def test_an_empty_selection_can_be_proven_too() -> None:
    session = synced()
    assert kinds(prove(session, T0, 10)) == ["proven"] and session.agents() == {}


def test_a_suspect_is_told_and_invalidates_nothing() -> None:
    session = synced(A)
    prove(session, T0, 10, A)
    suspect = event("suspect", None, agent="acme/a", content_digest="sha256:c", reports=2)
    assert kinds(session.receive(suspect)) == ["suspect"]
    assert session.get("acme/a") is not None and session.age(T0) == 0.0


def test_a_selection_knows_what_its_silence_means() -> None:
    assert Selection().covers("acme/a")
    some = Selection(agents=("acme/a",), namespaces=("beta",))
    assert some.covers("acme/a") and some.covers("beta/x") and not some.covers("acme/b")
    assert some.query(None) == "agent=acme%2Fa&namespace=beta"
    thin = Selection(change_class="breaking", cards=False)
    assert thin.query(Position(7, "0" * 16)) == "class=breaking&cards=false&from=7.0000000000000000"


def test_the_set_digest_is_the_registrys() -> None:
    # As src/terms/set_digest.rs has it: a set of one is SHA-256 of `agent NUL revision NUL raw digest`.
    import hashlib

    expected = hashlib.sha256(b"acme/worker\x0012\x00sha256:" + b"0" * 64).hexdigest()
    assert f"{set_digest_of('acme/worker', 12, 'sha256:' + '0' * 64):064x}" == expected


def test_server_sent_events_are_read_however_they_are_cut() -> None:
    text = 'event: upsert\r\nid: 1.a\ndata: {"n":\ndata: "ü"}\n\n: keep-alive\n\ndata: x\n\nevent: none\n\n'
    whole = SseParser().feed(text.encode())
    assert whole == [SseEvent("upsert", '{"n":\n"ü"}', "1.a"), SseEvent("message", "x", None)]
    parser = SseParser()
    assert [one for byte in text.encode() for one in parser.feed(bytes([byte]))] == whole
    with pytest.raises(ValueError):
        SseParser().feed(b"data: " + b"x" * (5 * 1024 * 1024))
    with pytest.raises(ValueError):
        SseParser().feed(b"data: \xff\n\n")
