"""Questions that every object, policy and loop answers, in both APIs."""
