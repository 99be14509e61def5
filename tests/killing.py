"""A run that is killed (kill -9) at random moments and begun again until it comes to its end: what is in its
journal is neither asked nor evaluated again."""

import json
import time
from collections import Counter

MOST_SECONDS = 300


def journalled(folder):
    """Requests and evaluations that are safe: their lines in the journal are whole."""
    path = folder / "journal.jsonl"
    requests, evaluations = {}, set()
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
        if line.endswith(b"\n"):
            kind, key, value = json.loads(line)
            if kind == "exchange":
                requests[key] = name_of(value["request"])
            if kind == "evaluation":
                evaluations.add(key)
    return Counter(requests.values()), evaluations


def name_of(request):
    return json.dumps([request["messages"], request.get("temperature")], sort_keys=True)


def evaluated(log):
    return log.read_text().split() if log.exists() else []


def killed_until_it_ends(begin, folder, server, needed, chance, most):
    """What the last process printed, and how many were killed, of `most`. `begin(folder, url)` starts one and
    names the file of its evaluations; a whole run makes `needed` requests of the `server`."""
    kills = 0
    while True:
        requests, evaluations = journalled(folder)
        asked = len(server.requests)
        process, log = begin(folder, server.url)
        before = len(evaluated(log))
        target = asked + chance.randint(1, needed // most)
        deadline = time.monotonic() + MOST_SECONDS
        while process.poll() is None and len(server.requests) < target:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        if process.poll() is None and kills < 2 * most:
            process.kill()
            kills += 1
        printed, error = process.communicate(timeout=MOST_SECONDS)
        assert process.returncode in (0, -9), error
        assert not set(evaluated(log)[before:]) & evaluations
        if (spending := folder / "spending.json").exists():  # behind by one answer at most
            calls = json.loads(spending.read_text())["total"]["calls"]
            assert 0 <= journalled(folder)[0].total() - calls <= 1
        made = Counter(name_of(request) for request in server.requests[asked:])
        new = journalled(folder)[0] - requests
        assert not [text[-300:] for text in new - made]
        if process.returncode == 0:
            assert made == new  # each request was one that no earlier process had answered
            return printed, kills
