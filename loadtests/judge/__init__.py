"""Simulation of the judge: how often it promotes bad candidates and rolls back good ones."""
