"""What changed between the card that was negotiated with and the one that is current.

The words are the registry's (`GET …/diff` tells everything, with pointers). Here stands what a caller can act
on, computed from the two documents, so that it is there when the registry is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from .card import Card

_ORDER = ("cosmetic", "additive", "breaking")


@dataclass(frozen=True, slots=True)
class Item:
    kind: str
    change_class: str
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """The gravest class of the items; silent when the card's own version stayed although it matters."""

    change_class: str
    silent: bool
    items: tuple[Item, ...]

    def __str__(self) -> str:
        told = ", ".join(f"{item.kind} {item.subject}".rstrip() for item in self.items[:5])
        more = f" and {len(self.items) - 5} more" if len(self.items) > 5 else ""
        return f"{'silent ' if self.silent else ''}{self.change_class}: {told or 'nothing'}{more}"


RETIREMENT = Change("breaking", False, (Item("agent_retired", "breaking"),))


def between(before: Card, after: Card, same_negotiation: bool | None = None) -> Change:
    """From `before` to `after`.

    `same_negotiation` is what the negotiation fingerprints say where both are known: they decide whether a
    change is cosmetic. Without them the comparison here decides.
    """
    items: list[Item] = []
    if not same_negotiation:
        items += _skills(before, after) + _capabilities(before, after) + _interfaces(before, after)
        items += _extensions(before, after) + _security(before, after)
        if same_negotiation is False and not items and before.shape == after.shape:
            items.append(Item("negotiation_changed", "breaking"))
    if before.shape != after.shape:
        kind, grade = ("shape_widened", "additive") if after.shape == "superset" else ("shape_changed", "breaking")
        items.append(Item(kind, grade))
    grade = max((item.change_class for item in items), key=_ORDER.index, default="cosmetic")
    silent = grade != "cosmetic" and before.version == after.version
    if before.version != after.version:
        items.append(Item("version_changed", "cosmetic", after.version or ""))
    if not items and before.document != after.document:
        items.append(Item("content_changed", "cosmetic"))
    return Change(grade, silent, tuple(items))


def _skills(before: Card, after: Card) -> list[Item]:
    old, new = before.skills, after.skills
    items = [Item("skill_removed", "breaking", skill) for skill in old if skill not in new]
    items += [Item("skill_added", "additive", skill) for skill in new if skill not in old]
    for skill_id in (skill for skill in old if skill in new):
        a, b = old[skill_id], new[skill_id]
        for side, had, has in (
            ("input", a.input_modes, b.input_modes),
            ("output", a.output_modes, b.output_modes),
        ):
            removed, added = [m for m in had if m not in has], [m for m in has if m not in had]
            items += [Item(f"{side}_mode_removed", "breaking", f"{skill_id} {mode}") for mode in removed]
            items += [Item(f"{side}_mode_added", "additive", f"{skill_id} {mode}") for mode in added]
        if a.security != b.security:
            items.append(Item("skill_security_changed", "breaking", skill_id))
    return items


def _capabilities(before: Card, after: Card) -> list[Item]:
    items = []
    for name in ("streaming", "push_notifications", "extended_card"):
        had, has = getattr(before, name), getattr(after, name)
        if had and not has:
            items.append(Item(f"{name}_withdrawn", "breaking"))
        elif has and not had:
            items.append(Item(f"{name}_added", "additive"))
    return items


def _interfaces(before: Card, after: Card) -> list[Item]:
    old, new = before.interfaces, after.interfaces
    items = [Item("interface_removed", "breaking", one.url) for one in old if one not in new]
    items += [Item("interface_added", "additive", one.url) for one in new if one not in old]
    if old[:1] != new[:1]:
        items.append(Item("preferred_interface_changed", "breaking", new[0].url if new else ""))
    elif [one for one in old if one in new] != [one for one in new if one in old]:
        items.append(Item("interfaces_reordered", "breaking"))
    return items


def _extensions(before: Card, after: Card) -> list[Item]:
    old, new = before.extensions, after.extensions
    items = [Item("extension_removed", "breaking", uri) for uri in old if uri not in new]
    for uri, required in new.items():
        if required and not old.get(uri, False):
            items.append(Item("extension_required", "breaking", uri))
        elif uri not in old:
            items.append(Item("extension_added", "additive", uri))
        elif old[uri] and not required:
            items.append(Item("extension_relaxed", "breaking", uri))
    return items


def _security(before: Card, after: Card) -> list[Item]:
    # v0.x and v1.0 write the same requirement differently; across shapes only the fingerprints can tell.
    if before.shape != after.shape:
        return []
    items = []
    old, new = before.schemes, after.schemes
    items += [Item("security_scheme_removed", "breaking", name) for name in old if name not in new]
    items += [Item("security_scheme_added", "breaking", name) for name in new if name not in old]
    changed = [name for name in old if name in new and old[name] != new[name]]
    items += [Item("security_scheme_changed", "breaking", name) for name in changed]
    if before.security != after.security:
        items.append(Item("security_changed", "breaking"))
    return items
