"""Messages that only a later version reads: hidden for hours, and shown once it is deployed.

A worker that is bought for such a message cannot do it, and neither can the next. So the worker
hides it for as long as SQS allows, and says so in a row. A hidden message is no backlog. The tick
is deployed with the workers, so it knows what they read.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from spindown.contract import row as rows
from spindown.contract.job import manifest, message
from spindown.contract.row import NewerMessage
from spindown.control.plan.action import Action, ActionKind, PlanDraft, ShowMessage
from spindown.domain.lease import PUT_BACK_AT_MOST, VISIBILITY_CAP, unreadable_wait
from spindown.domain.reason import Reason, ReasonCode
from spindown.port import When, Write

#: What ``NewerSchema`` names -> the schema that this version reads.
READS: Mapping[str, int] = {
    "message.schema": message.SCHEMA,
    "manifest.schema": manifest.SCHEMA,
}
#: Messages that one tick shows; each is a call.
_SHOWN_AT_ONCE = 50
#: Whoever receives a message that is visible again writes its row anew. SQS hides none for longer
#: than ``VISIBILITY_CAP``, whatever a row says.
_KEPT_FOR = timedelta(minutes=15)


def show_newer_messages(draft: PlanDraft) -> PlanDraft:
    """Show the messages that the deployed version reads by now, and tell of the others."""
    found, now = draft.facts.view.newer_messages, draft.now
    if not found:
        return draft
    hidden = [each for each in found if now < each.until <= now + VISIBILITY_CAP]
    show = (
        ShowMessage(
            kind=ActionKind.SHOW,
            subject=each.message_id,
            writes=(_forget(draft, each),),
            receipt_handle=each.receipt_handle,
            shape=each.shape,
        )
        for each in [each for each in hidden if _is_to_show(each, now)][:_SHOWN_AT_ONCE]
    )
    over = [each for each in found if not -VISIBILITY_CAP <= now - each.until <= _KEPT_FOR]
    clean_up = (
        Action(kind=ActionKind.CLEAN_UP, subject=each.message_id, writes=(_forget(draft, each),))
        for each in over[:_SHOWN_AT_ONCE]
    )
    unread = [each for each in hidden if not _is_readable(each)]
    return draft.act((*show, *clean_up), notes=[_reason(unread)] if unread else [])


def _is_readable(known: NewerMessage) -> bool:
    return known.schema <= READS.get(known.field, 0)


def _is_to_show(known: NewerMessage, now: datetime) -> bool:
    """Tell whether workers as deployed read it and have not just shown that they do not.

    Some may be older than the deploy: those that are still at work, or whose image is. So whoever
    received it often waits as long as without a row.
    """
    declined_at = known.until - PUT_BACK_AT_MOST
    wait = unreadable_wait(known.receives, is_noted=False)
    return _is_readable(known) and now >= declined_at + wait


def _forget(draft: PlanDraft, known: NewerMessage) -> Write:
    """Return the removal of a row, unless the message has been received again since."""
    when = When(equals={"receipt_handle": known.receipt_handle})
    return replace(draft.rows.delete(rows.newer_message_sort_key(known.message_id)), when=when)


def _reason(hidden: list[NewerMessage]) -> Reason:
    first = min(hidden, key=lambda each: (each.sent_at, each.message_id))
    return Reason(
        ReasonCode.NEWER_MESSAGES,
        {
            "messages": len(hidden),
            "field": first.field,
            "schema": first.schema,
            "reads": READS.get(first.field, 0),
            "until": min(each.until for each in hidden).isoformat(),
        },
    )
