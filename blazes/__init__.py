"""Coordination analysis of dataflows: labels, the plan, reports and the command line.

After Alvaro, Conway, Hellerstein and Maier, "Blazes: Coordination Analysis for Distributed
Programs" (ICDE 2014).
"""
