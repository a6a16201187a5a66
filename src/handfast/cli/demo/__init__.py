"""``handfast demo``.

`command` is the command, `acts` the acts shown, `stage` the parts shared by the acts, `worker` a process.
"""
