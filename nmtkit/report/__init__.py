"""The report: scored runs and studies next to published results."""
