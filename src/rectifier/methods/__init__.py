"""Training methods: METHODS, a dict of them, and the functions that build their objects from data."""

from rectifier.methods.building import (
    build_afterwards,
    build_mixing,
    build_objective,
    build_sampler,
    check_method,
    needed_of_network,
    rounds_of,
    whole_from,
)
from rectifier.methods.catalogue import METHODS, find_method
from rectifier.methods.method import SLOTS, Afterwards, Method, Part

__all__ = [
    "METHODS",
    "SLOTS",
    "Afterwards",
    "Method",
    "Part",
    "build_afterwards",
    "build_mixing",
    "build_objective",
    "build_sampler",
    "check_method",
    "find_method",
    "needed_of_network",
    "rounds_of",
    "whole_from",
]
