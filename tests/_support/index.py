"""The engine's scripts for data, called by hand."""

from __future__ import annotations

from handfast._engine.keys import KeySet
from handfast._engine.script import load


class Index:
    """The scripts of one autocomplete index and one board of scores."""

    def __init__(self, client):
        self.client = client
        self.place = KeySet("hf", "autocomplete", "a")

    def run(self, name, *args, answer=""):
        """Run a script. Only scores_advance has an ``answer``: the key of that one call."""
        script = load(name)
        keys = [self.key(f"answer:{answer}" if part == "answer" else part) for part in script.header.keys]
        tag, *fields = reply = self.client.eval(script.source, len(keys), *keys, *args)
        assert len(fields) == len(script.header.replies[tag])
        return reply

    def key(self, part):
        return self.place.key(part)

    def dump(self):
        """Return everything stored, byte for byte, without the TTLs."""
        return {key: self.client.dump(key) for key in sorted(self.client.scan_iter())}

    def fill(self, ranks):
        """Rank any number of names."""
        pairs = list(ranks.items())
        for start in range(0, len(pairs), 500):
            piece = pairs[start : start + 500]
            assert self.run("names_rank", "set", *(part for pair in piece for part in pair)) == ["ranked"]

    def scores_of(self, part):
        return self.client.zrange(self.key(part), 0, -1, withscores=True)

    def advance(self, *pairs, answer):
        return self.run("scores_advance", *pairs, answer=answer)

    def best(self, prefix, limit, way="any", start=0, after=""):
        return self.run("names_best", prefix, limit, way, start, after)

    def scan(self, prefix, limit, after=""):
        """Return one piece of a scan: its names in the order of their ranks, and the last name that it looked at."""
        tag, matching, found, last = self.best(prefix, limit, "scan", 0, after)
        assert (tag, matching) == ("scanned", self.client.zlexcount(self.key("names"), f"[{prefix}", f"[{prefix}~"))
        return sorted(found[::2], key=dict(zip(found[::2], map(float, found[1::2]), strict=True)).get), last
