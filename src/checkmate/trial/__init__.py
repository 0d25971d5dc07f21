"""Both graphs run, and what that proves of a schedule."""
