"""The markers a test carries: ``perf(**workload)`` and one for each bound."""
