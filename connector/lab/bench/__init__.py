"""The test bench of the trials: a broker, proxies that fail on demand, processes that are killed."""
