"""What goes wrong around the control plane, and the alarm that is late or stuck."""

from spindown.simulator.fault.alarm import SimAlarm
from spindown.simulator.fault.kind import Alarm, Faults

__all__ = ["Alarm", "Faults", "SimAlarm"]
