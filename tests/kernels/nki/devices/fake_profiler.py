"""An executable that answers like `neuron-profile` or `neuron-explorer`; what it says is in the JSON file
beside it: `summaries` in turn, or `seconds` by the name in the compiled file, and `faults` by that name;
`tables` are those that an explorer writes, in a folder of its own inside of the one asked for."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
script = json.loads((FOLDER / "script.json").read_text())
calls = FOLDER / "calls.txt"
with calls.open("a") as log:
    log.write(" ".join(sys.argv[1:]) + "\n")

options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
neff = Path(options.get("-n", ""))
assert neff.read_bytes().startswith(b"NEFF"), neff
kernel = neff.read_text().removeprefix("NEFF ")
fault = script.get("faults", {}).get(kernel)
if sys.argv[1] == "capture":
    if fault == "fails":
        sys.exit("nrt_init: no free core")
    if fault in ("SIGTERM", "SIGKILL"):
        os.kill(os.getppid(), getattr(signal, fault))
    if fault == "hangs":
        subprocess.Popen(["sleep", "600"])  # it keeps the output open
        time.sleep(600)
    Path(options["-s"]).write_bytes(b"NTFF")
elif sys.argv[1] == "view":
    options = dict(zip(sys.argv[2::2], sys.argv[3::2]))
    if options["--output-format"] == "parquet":
        from pyarrow import Table, parquet

        place = Path(options["--output-file"], "profile@latest")
        place.mkdir()
        for name, rows in script.get("tables", {}).items():
            if rows == "garbage":
                (place / f"{name}.parquet").write_bytes(b"PAR1")
            else:
                parquet.write_table(Table.from_pylist(rows), place / f"{name}.parquet")
        sys.exit(0)
    if "no_summary" in script:
        sys.exit("unknown output format: summary-json")
    assert options["--output-format"] == "summary-json"
    assert Path(options["-s"]).is_file()
    viewed = sum(line.startswith("view") for line in calls.read_text().splitlines()) - 1
    print("level=info msg=processing", flush=True)
    if fault == "garbage":
        sys.stdout.buffer.write(b"\xff\xfe{\x00 not a summary")
    elif "seconds" in script:
        print(json.dumps({"n_1": {"total_time": script["seconds"][kernel]}}))
    else:
        answers = script["summaries"]
        print(answers[viewed % len(answers)])
