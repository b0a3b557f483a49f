"""Why the registry refuses, and after what the same request may be sent again.

The table is the registry's own (its README, "Reasons"). A reason that is not in it is never retried.
"""

from __future__ import annotations

from enum import Enum


class Retry(Enum):
    NO = "no"
    YES = "yes"
    LATER = "later"
    AFTER_CHANGE = "after a change"
    AFTER_REREAD = "after reading again"
    AFTER_RESYNC = "after a resync"
    ELSEWHERE = "elsewhere"
    SAME_REQUEST_ID = "yes, same request id"


def _table(**classes: str) -> dict[str, Retry]:
    return {reason: Retry[name] for name, reasons in classes.items() for reason in reasons.split()}


RETRY = _table(
    NO="invalid_argument invalid_card unauthenticated forbidden no_such_route method_not_allowed "
    "payload_too_large unsupported_media_type internal unsupported_entry",
    AFTER_CHANGE="agent_not_found revision_not_found agent_retired card_redacted revision_below_floor "
    "version_below_floor version_incomparable skill_missing mode_missing capability_missing pin_mismatch "
    "origin_unconfirmed policy_version_bump policy_breaking policy_immutable policy_signature "
    "release_superseded",
    YES="too_stale freshness_unverifiable position_not_reached position_unverifiable store_unavailable "
    "draining access_changed max_age deadline_exceeded",
    AFTER_REREAD="revision_conflict",
    AFTER_RESYNC="history_diverged position_in_future page_token_expired stream_not_here",
    LATER="rate_limited subscriber_too_slow overloaded",
    ELSEWHERE="read_only",
    SAME_REQUEST_ID="outcome_unknown",
)


def retry_of(reason: str) -> Retry:
    return RETRY.get(reason, Retry.NO)
