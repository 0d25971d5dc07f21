"""HiGHS behind a wall: the only room with highspy."""
