"""The questions that need processes of their own, real pauses, or many of something."""
