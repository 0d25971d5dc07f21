"""The files that checkmate reads and writes."""
