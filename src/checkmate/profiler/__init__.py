"""What each op costs: measured one by one and remembered, or counted from shapes."""
