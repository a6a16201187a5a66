"""Floor 0: the words of the house.

Errors, records, durations, quantities and names. Nothing here knows another floor, nor redis, nor the time of day.
"""
