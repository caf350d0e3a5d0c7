"""What few seeds can say, as pure functions of plain values.

intervals    noise floor, paired and Welch differences
contrasts    every arm against the control in one fit; Holm's adjustment
verdicts     better, worse, equivalent, inconclusive: one rule
sample_size  seeds that a margin needs, before and after
predictions  what was written down before, held against the verdicts
story_noise  the part of the noise that comes from the choice of test stories
curves       bits per byte against FLOPs, the compute that one arm saves another
ladder       isoFLOP minima over several sizes
"""
