"""Gather the runs of a study: from the workspace, from the MLflow store, from the commit an experiment began at.

Runs are comparable when the stories, the evaluation protocol and the compute budget (within 1 %) agree. What is
left out is listed with its reason.

workspace  one run's files, checked against its plan
groups     runs of one configuration on their way to an arm
earlier    runs of the store
gathering  all of it, and which arm is the control
"""

from isoflop.collecting.gathering import collect

__all__ = ["collect"]
