"""``handfast demo``.

`command` is the command, `acts` what is shown, `stage` what the acts share, `worker` a process.
"""
