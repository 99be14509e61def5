"""What a child says of its work, beside its result."""

import json

from accelopt.sandbox.progress import announced, heard_by, note, report_to, split


def test_notes_are_heard_as_they_come_and_are_no_part_of_the_result():
    said = bytearray()
    report_to(said.extend)
    try:
        with announced("the reference"):
            note("tracing")
        note("timing [1]")
    finally:
        report_to(lambda _: None)
    said += json.dumps({"answer": 1}).encode()
    heard: list[str] = []
    listen = heard_by(heard.append)
    for at in range(0, len(said), 7):  # however it is cut
        listen(bytes(said[at : at + 7]))
    assert heard == ["tracing", "timing [1]"]
    told = split(bytes(said))
    assert (told.doing, told.last, json.loads(told.rest)) == ("", "the reference", {"answer": 1})
