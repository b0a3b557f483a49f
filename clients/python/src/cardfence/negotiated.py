"""What a task was negotiated on: the intent, and the card that it was agreed under."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from .card import Card
from .fence import Fence, SkillWanted
from .resolved import Resolved


@dataclass(frozen=True, slots=True)
class Intent:
    """What a task needs of an agent.

    `expected_duration` is in seconds; None is unknown, so that no card in hand is young enough. `fence` holds
    further conditions; its skills are added to this one.
    """

    agent: str
    skill: str
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    expected_duration: float | None = None
    needs_push: bool = False
    needs_streaming: bool = False
    fence: Fence = field(default_factory=Fence)

    def start_fence(self) -> Fence:
        """All that must hold when the task starts."""
        return replace(
            self.fence,
            skills=(self._wanted(), *self.fence.skills),
            streaming=self.fence.streaming or self.needs_streaming,
            push_notifications=self.fence.push_notifications or self.needs_push,
        )

    def held_fence(self) -> Fence:
        """What must hold for as long as the task is held: the skill and the modes that it needs."""
        return Fence(skills=(self._wanted(),), wait=self.fence.wait)

    def _wanted(self) -> SkillWanted:
        return SkillWanted(self.skill, self.input_modes, self.output_modes)


@dataclass(frozen=True, slots=True)
class Negotiated:
    """A task's card: carried from the first fence to the last artifact, whatever becomes current meanwhile."""

    intent: Intent
    resolved: Resolved
    # Whether the memo served, so that the registry was not asked for this task.
    from_memo: bool = False

    @property
    def agent(self) -> str:
        return self.resolved.agent

    @property
    def skill(self) -> str:
        return self.intent.skill

    @property
    def revision(self) -> int:
        return self.resolved.revision

    @property
    def content_digest(self) -> str:
        return self.resolved.content_digest

    @property
    def raw_digest(self) -> str:
        return self.resolved.raw_digest

    @property
    def skill_fingerprint(self) -> str:
        return self.resolved.skill_fingerprint

    @property
    def negotiation_fingerprint(self) -> str:
        return self.resolved.negotiation_fingerprint

    @property
    def card(self) -> Card:
        return self.resolved.card

    @property
    def output_modes(self) -> tuple[str, ...]:
        """The skill's effective output modes, which artifacts are held against."""
        skill = self.card.skill(self.intent.skill)
        return skill.output_modes if skill else ()
