"""A manager in a process of its own: python drive_manager.py FOLDER URL LOG. Prints its result."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import planted_fsm

from accelopt.fsm import FSMOptimizationManager

if __name__ == "__main__":
    folder, url, log = sys.argv[1:]
    planted_fsm.Resources.log = Path(log)
    planted_fsm.Resources.seconds = 0.01
    case = planted_fsm.start(Path(folder).parent / "start")
    model = {"url": url, "model": "m", "backoff": 0.01}
    manager = FSMOptimizationManager(
        max_rounds=3, log_dir=folder, backend="planted_fsm:Resources", workers=2, model_config=model
    )
    print(json.dumps(manager.run_optimization(case.kernel, case.task, ""), sort_keys=True))
