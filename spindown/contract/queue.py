"""What the queues of a workload are like, and where that of a shape lies."""

from datetime import timedelta

from spindown.contract.name import SEPARATOR

#: A dead letter keeps the age of its message, so the dead-letter queue keeps it for longer.
KEPT_FOR = timedelta(days=12)
#: What a receive waits for that does not say how long: SQS's longest.
POLL = timedelta(seconds=20)
#: How long a message is hidden whose receive does not say how long.
HIDDEN_FOR = timedelta(minutes=5)

#: How the name of a shape begins (``domain.shape.Shape.name``), and that of no other queue of a
#: workload: what may be done with the queues of shapes is said by this pattern.
SHAPES = "c*"


def queue_of_shape(queue: str, shape: str) -> str:
    """Return name, URL or ARN of the queue of a shape by that of its workload's queue.

    SQS ends all three with the queue's name.
    """
    return f"{queue}{SEPARATOR}{shape}" if shape else queue
