"""FSDP2's collectives without layout copies: shards go straight into the parameters, gradients are read where autograd left them.

options (what may be chosen) · units (what FSDP2 shards together, and what it cannot hand over) · roll_call (how ranks agree at the
start) · proof (debug mode: schedules are proved) · collectives (one model's collectives) · unit_collectives (one unit's) · hook
(the one file that replaces parts of torch).
"""
