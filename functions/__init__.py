"""Lambda entry points: parse the event, call one use case, log, emit metrics."""

import gc

#: Objects that a function makes more than it frees before the garbage collector looks for cycles.
#: A start with a live edit makes 140,000 that stay: modules, service models, forms. At Python's
#: own 700 the collector would look through them again and again, a fifth of that start. The same
#: number of objects is some 30 MiB, so little is lost of a function's memory while it waits.
COLLECTED_AFTER = 200_000

gc.set_threshold(COLLECTED_AFTER)
