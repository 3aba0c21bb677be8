from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
from engines.worker import exit_within
exit_within(0.2, 7)
threading.Thread(target=threading.Event().wait).start()  # keeps the interpreter from ending
"""


def test_a_host_that_hangs_while_it_cleans_up_is_gone_nevertheless() -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 7
    assert "cleaning up took more than 0.2 s" in ended.stderr
