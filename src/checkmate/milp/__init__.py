"""The paper's formulation as a mixed-integer program."""
