"""Lambda entry points: parse the event, call one use case, log, emit metrics."""
