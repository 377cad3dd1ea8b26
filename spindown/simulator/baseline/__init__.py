"""What people run instead, on the same market and with the same bill."""

from spindown.simulator.baseline.fleet import (
    Baseline,
    alarm_and_idle,
    simulate_baseline,
    warm_machine,
)

__all__ = ["Baseline", "alarm_and_idle", "simulate_baseline", "warm_machine"]
