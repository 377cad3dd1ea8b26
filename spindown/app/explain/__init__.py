"""What a person asks, answered from the ledger, the bucket and the market. Writes nothing."""
