"""Trains one model plain, with full checkpointing and with Tidetape under several memory limits, and compares them."""
