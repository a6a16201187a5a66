"""A client of the asyncio colour in virtual time: one connection for all its tasks, and a keeper that is a timer.

The counterpart of drivers/aio, module by module; what it says there about why holds here.
"""
