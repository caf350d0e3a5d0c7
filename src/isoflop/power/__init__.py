"""What a study will take before it is spent: `python -m isoflop.power [--study NAME]`.

Seeds per arm for the margin, from the noise floor that the control's finished seeds show (or --sd), with the
FLOPs and the hours of all arms. Runs that stand already are not counted again.

known      runs that stand already, and how fast the last ones were
outlook    seeds needed, and their cost
tables     how it is printed
arguments  types of command-line arguments
"""
