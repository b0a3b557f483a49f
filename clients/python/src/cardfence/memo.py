"""What a guard keeps between tasks: the last card of each agent, and the cards under suspicion.

Pure but for a lock. Both are bounded; what is forgotten is only asked for again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from .clock import Instant
from .modes import accepted
from .negotiated import Intent
from .resolved import Resolved

MEMOS_MAX = 10_000
SUSPECTS_MAX = 10_000


@dataclass(slots=True)
class Suspect:
    """A card that an answer spoke against.

    Only a confirmation of its origin after the evidence clears it. When that was is the registry's to say, in
    its own clock: the first proof asked for after the evidence is the `baseline`, and a confirmation must be
    later than both what it told of the origin and when it was made. Before there was one nothing clears.
    """

    at: Instant
    baseline: tuple[str | None, ...] | None = None


class Memos:
    """One guard's memory, for any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._memos: OrderedDict[str, tuple[Resolved, int]] = OrderedDict()
        self._suspects: OrderedDict[tuple[str, str], Suspect] = OrderedDict()

    def keep(self, resolved: Resolved, history: int) -> None:
        with self._lock:
            self._memos[resolved.agent] = (resolved, history)
            self._memos.move_to_end(resolved.agent)
            while len(self._memos) > MEMOS_MAX:
                self._memos.popitem(last=False)

    def get(self, agent: str, history: int) -> Resolved | None:
        """The card in hand; none of a history that is no more."""
        with self._lock:
            held = self._memos.get(agent)
            if held is not None and held[1] != history:
                del self._memos[agent]
                return None
            return held[0] if held else None

    def drop(self, agent: str) -> None:
        with self._lock:
            self._memos.pop(agent, None)

    def suspect(self, agent: str, content_digest: str, now: Instant) -> bool:
        """Puts a card under suspicion; whether it was not before. New evidence renews the suspicion."""
        with self._lock:
            is_new = (agent, content_digest) not in self._suspects
            self._suspects[agent, content_digest] = Suspect(now)
            self._suspects.move_to_end((agent, content_digest))
            while len(self._suspects) > SUSPECTS_MAX:
                self._suspects.popitem(last=False)
            return is_new

    def is_suspect(self, agent: str, content_digest: str) -> bool:
        with self._lock:
            return (agent, content_digest) in self._suspects

    def has_suspects(self, agent: str) -> bool:
        with self._lock:
            return any(name == agent for name, _ in self._suspects)

    def cleared(self, resolved: Resolved, is_linearizable: bool) -> bool:
        """Whether `resolved` is above suspicion. Only a linearizable answer can set or pass a baseline."""
        with self._lock:
            key = (resolved.agent, resolved.content_digest)
            suspect = self._suspects.get(key)
            if suspect is None:
                return True
            fresh = resolved.freshness
            if not is_linearizable or fresh.sent.boot < suspect.at.boot:
                # It may tell how things were before the evidence.
                return False
            if suspect.baseline is None:
                suspect.baseline = (fresh.origin_confirmed_at, fresh.proven_at)
                return False
            # RFC 3339 in UTC with microseconds, so texts compare as times do.
            confirmed = fresh.origin_confirmed_at
            if confirmed is None or any(one is not None and confirmed <= one for one in suspect.baseline):
                return False
            del self._suspects[key]
            return True


def serves(memo: Resolved, intent: Intent, now: Instant) -> bool:
    """Whether a card in hand may start a task without asking (mission C1 and C2).

    Its age is within twice the redeploy interval that the registry observed, which has to be known; and
    within the task's expected duration, unless the namespace declares its versions immutable. A fence that
    only the registry can judge is always asked.
    """
    fence = intent.fence
    age = memo.freshness.age(now)
    revalidate_after = memo.freshness.revalidate_after
    if age is None or revalidate_after is None or age > revalidate_after:
        return False
    if not memo.immutable_versions and (intent.expected_duration is None or age > intent.expected_duration):
        return False
    if isinstance(fence.max_staleness, (int, float)) and age > fence.max_staleness:
        return False
    asked = (fence.at_least, fence.min_revision, fence.min_version, fence.max_origin_age)
    if any(condition is not None for condition in asked):
        return False
    pins = {
        fence.pin: memo.content_digest,
        fence.pin_skills: memo.skill_fingerprint,
        fence.pin_negotiation: memo.negotiation_fingerprint,
    }
    if any(pin is not None and pin != held for pin, held in pins.items()):
        return False
    return covers(memo, intent)


def covers(memo: Resolved, intent: Intent) -> bool:
    """Whether the card has all that the task needs of it."""
    card, fence = memo.card, intent.start_fence()
    for wanted in fence.skills:
        skill = card.skill(wanted.id)
        if skill is None:
            return False
        if not all(accepted(skill.input_modes, mode) for mode in wanted.input_modes):
            return False
        if not all(accepted(skill.output_modes, mode) for mode in wanted.output_modes):
            return False
    needs = (
        (fence.streaming, card.streaming),
        (fence.push_notifications, card.push_notifications),
        (fence.extended_card, card.extended_card),
    )
    return all(has for wanted, has in needs if wanted) and all(uri in card.extensions for uri in fence.extensions)
