"""What an instruction and a transfer cost, who waits for whom, and when everything happens."""
