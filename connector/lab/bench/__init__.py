"""What trials are made on: a broker, proxies that fail on demand, processes that are killed."""
