"""Training schedules as data: phases, plans, and changes from yaml.

The plans of a model, with their learning rates, are its class attribute ``presets``, in the file of the model.
``protometry.callbacks.PhaseSchedule`` walks the plan of a run inside one ``fit``.
"""

from protometry.lightning_modules.phases.override import PhaseOverride, over, plain
from protometry.lightning_modules.phases.phase import FIT_HEAD, HeadSpec, OptimizerSpec, Phase, SchedulerSpec, one_cycle
from protometry.lightning_modules.phases.plan import PhasePlan

__all__ = [
    "FIT_HEAD",
    "HeadSpec",
    "OptimizerSpec",
    "Phase",
    "PhaseOverride",
    "PhasePlan",
    "SchedulerSpec",
    "one_cycle",
    "over",
    "plain",
]
