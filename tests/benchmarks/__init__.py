"""What Lakelock costs and saves, against its peers: see README.md next to this file."""
