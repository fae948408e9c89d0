"""Random programs: modules made from a grammar of ops, trained with and without Tidetape, and compared to the bit.

A program is data, made from a seed (`generate`), printed as Python (`program`), trained in several ways (`train`), and made
smaller while it fails (`shrink`). `python -m tests.random_programs --help` runs many; a seed reproduces.
"""
