"""Messages that only a later version reads: hidden for hours, and shown once it is deployed.

A worker that is bought for such a message cannot do it, and neither can the next: it hides the
message for as long as SQS allows and says so in a row. What is hidden is no backlog. The tick is
deployed with the workers, so it knows what they read.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from spindown.contract import row as rows
from spindown.contract.job import manifest, message
from spindown.contract.row import NewerMessage
from spindown.control.plan import Action, ActionKind, PlanDraft, ShowMessage
from spindown.domain.lease import VISIBILITY_CAP
from spindown.domain.reason import Reason, ReasonCode
from spindown.port import When, Write

#: What ``NewerSchema`` names -> the schema that this version reads.
READS: Mapping[str, int] = {
    "message.schema": message.SCHEMA,
    "manifest.schema": manifest.SCHEMA,
}
#: Messages that one tick shows; each is a call.
_SHOWN_AT_ONCE = 50
_RECEIVES_AT_MOST = 8
#: Whoever receives a message that is visible again writes its row anew. SQS hides none for longer
#: than ``VISIBILITY_CAP``, whatever a row says.
_KEPT_FOR = timedelta(minutes=15)


def show_newer(draft: PlanDraft) -> PlanDraft:
    """Show the messages that the deployed version reads by now, and tell of the others."""
    found = draft.facts.view.newer
    if not found:
        return draft
    readable = [each for each in found if _is_readable(each)]
    unreadable = [each for each in found if not _is_readable(each)]
    show = (
        ShowMessage(
            kind=ActionKind.SHOW,
            subject=each.message_id,
            writes=(_forget(draft, each),),
            receipt_handle=each.receipt_handle,
        )
        for each in readable[:_SHOWN_AT_ONCE]
    )
    clean_up = (
        Action(kind=ActionKind.CLEAN_UP, subject=each.message_id, writes=(_forget(draft, each),))
        for each in unreadable
        if not -VISIBILITY_CAP <= draft.now - each.until <= _KEPT_FOR
    )
    hidden = [each for each in unreadable if draft.now < each.until]
    return draft.act((*show, *clean_up), notes=[_reason(hidden)] if hidden else [])


def _is_readable(known: NewerMessage) -> bool:
    """Tell whether workers as deployed read it; not if they have shown often that they do not.

    An image of one's own may be older than the deploy.
    """
    return known.schema <= READS.get(known.field, 0) and known.receives < _RECEIVES_AT_MOST


def _forget(draft: PlanDraft, known: NewerMessage) -> Write:
    """Return the removal of a row, unless the message has been received again since."""
    when = When(equals={"receipt_handle": known.receipt_handle})
    return replace(draft.rows.delete(rows.newer_sort(known.message_id)), when=when)


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
