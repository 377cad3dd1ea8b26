"""Lambda entry points: parse the event, call one use case, log, emit metrics."""

import gc

#: The garbage collector looks for cycles after this many objects more than were freed. A start
#: with a live edit makes 140,000 objects that stay: modules, service models, forms. With Python's
#: default of 700 the collector would search them again and again, which takes a fifth of that
#: start. This many objects need about 30 MiB, a small part of a function's memory.
COLLECTED_AFTER = 200_000

gc.set_threshold(COLLECTED_AFTER)
