"""An executable that answers like `neuron-profile`; what it says is in the JSON file beside it."""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
script = json.loads((FOLDER / "script.json").read_text())
calls = FOLDER / "calls.txt"
with calls.open("a") as log:
    log.write(" ".join(sys.argv[1:]) + "\n")

options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
neff = Path(options.get("-n", ""))
assert neff.read_bytes().startswith(b"NEFF"), neff
if sys.argv[1] == "capture":
    if "capture_error" in script:
        sys.exit(script["capture_error"])
    Path(options["-s"]).write_bytes(b"NTFF")
elif sys.argv[1] == "view":
    options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
    assert options["--output-format"] == "summary-json"
    assert Path(options["-s"]).is_file()
    viewed = sum(line.startswith("view") for line in calls.read_text().splitlines()) - 1
    answers = script["summaries"]
    print("level=info msg=processing")
    print(answers[viewed % len(answers)])
