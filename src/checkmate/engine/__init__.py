"""What the commands do, without a screen."""
